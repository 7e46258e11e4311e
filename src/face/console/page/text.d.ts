// SPDX-License-Identifier: Apache-2.0
// Files that are bundled as text.

declare module "*.css" {
    const text: string;
    export default text;
}
