#!/usr/bin/env node
// A capability for Node: adds up the payments of a topic of the bus. Each event is acknowledged when it was added.
//
// In the configuration of `millrace serve`:
//
//     [[capability]]
//     name = "Ledger"
//     command = ["node", "examples/capabilities/node/ledger.mjs"]
//
// Then: millrace pub payments '{"amount":5}'
//       millrace send '{"kind":"query","type":"Ledger.Total","data":{},"metadata":{"id":"1","timestamp":0}}'

import { createInterface } from "node:readline";

const manifest = {
  name: "Ledger",
  description: "Adds up payments",
  inbound: [{ kind: "query", type: "Ledger.Total", description: "The sum, and how many payments it is of" }],
  bus: [{ topic: "payments", from: "earliest" }],
};

const say = (message) => console.log(JSON.stringify(message));
const answer = (kind, { type, metadata }, data) => say({ kind, type, data, metadata: { causation: metadata.id } });

// An event may come again after a crash: its id tells. A real ledger would keep both in a database.
const seen = new Set();
let total = 0;

say(manifest);
// Ends with the server.
for await (const line of createInterface({ input: process.stdin })) {
  const message = JSON.parse(line);
  if (message.type === "Ledger.Total") {
    answer("reply", message, { total, payments: seen.size });
  } else if (message.type === "Bus.Message") {
    const { amount } = message.data.payload;
    if (typeof amount !== "number") {
      answer("error", message, { code: 422, message: `amount is ${amount}` }); // It comes again, then to the dead letters.
      continue;
    }
    if (!seen.has(message.metadata.id)) {
      seen.add(message.metadata.id);
      total += amount;
    }
    answer("reply", message, null); // Acknowledges it.
  }
}
