// SPDX-License-Identifier: Apache-2.0
// Managers of @jupyterlab/services for the gateway at KG_URL with the key KG_KEY, and the WebSockets
// that they have opened.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(pathToFileURL(process.env.KG_NODE_ROOT + "/"));
const services = require("@jupyterlab/services");
// What a page of JupyterLab's has from its server.
require("@jupyterlab/coreutils").PageConfig.setOption("terminalsAvailable", "true");

export async function connect() {
  const sockets = [];
  const settings = services.ServerConnection.makeSettings();
  class Seen extends settings.WebSocket {
    constructor(...options) {
      super(...options);
      sockets.push(this);
    }
  }
  const serverSettings = services.ServerConnection.makeSettings({
    baseUrl: process.env.KG_URL,
    token: process.env.KG_KEY,
    WebSocket: Seen,
  });
  const kernels = new services.KernelManager({ serverSettings });
  const specs = new services.KernelSpecManager({ serverSettings });
  await Promise.all([kernels.ready, specs.ready]);
  const sessions = () => new services.SessionManager({ kernelManager: kernels, serverSettings });
  const terminals = new services.TerminalManager({ serverSettings });
  return { kernels, specs, sessions, sockets, terminals };
}
