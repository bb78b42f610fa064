// Serves the package's own files on loopback, as a web server would.

import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { extname } from 'node:path';

const ROOT = new URL('../../', import.meta.url);
const TYPES: Record<string, string> = { '.html': 'text/html', '.js': 'text/javascript', '.map': 'application/json' };

export class PageServer {
  readonly requested: string[] = [];
  readonly #server: Server;

  private constructor() {
    this.#server = createServer((request, response) => {
      const { pathname } = new URL(request.url ?? '/', 'http://localhost');
      this.requested.push(pathname);
      readFile(new URL(`.${pathname}`, ROOT)).then(
        (body) => response.writeHead(200, { 'content-type': TYPES[extname(pathname)] ?? 'text/plain' }).end(body),
        () => response.writeHead(404).end(),
      );
    });
  }

  static async start(): Promise<PageServer> {
    const pages = new PageServer();
    pages.#server.listen(0, '127.0.0.1');
    await once(pages.#server, 'listening');
    return pages;
  }

  get origin(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  stop(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}
