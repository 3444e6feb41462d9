// Your own adapter, whose calls form a run: node examples/adapters/gate.mjs [ready.json]
import { openGate, openRun } from '@svc-proofs/sdk/adapters';
import { options } from './connect.mjs';

const bookTable = async ({ seats }) => `a table for ${seats}`;

const gate = openGate(options);
const run = openRun(options);
const call = { tool: 'book_table', arguments: { seats: 2 }, toolCallId: 'call-1', run };
const admission = await gate.begin(call); // throws unless admitted
const value = await bookTable(call.arguments);
await gate.end(admission, { result: 'succeeded', value });
await run.close();
console.log(value);
