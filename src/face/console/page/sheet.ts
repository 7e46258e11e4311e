// SPDX-License-Identifier: Apache-2.0
// Styles that come with code: the page's policy allows them as sheets of the object model, and refuses
// <style> elements.

export function addSheet(css: string): CSSStyleSheet {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(css);
    document.adoptedStyleSheets.push(sheet);
    return sheet;
}

/** What xterm.js uses in place of <style>; see build.mjs. Its text is a sheet while it is in the page. */
class StyleElement extends HTMLElement {
    private sheet = new CSSStyleSheet();

    override set textContent(css: string) {
        this.sheet.replaceSync(css);
    }
    connectedCallback() {
        document.adoptedStyleSheets.push(this.sheet);
    }
    disconnectedCallback() {
        const sheets = document.adoptedStyleSheets;
        document.adoptedStyleSheets = sheets.filter((sheet) => sheet !== this.sheet);
    }
}
customElements.define("kernelgate-style", StyleElement);
