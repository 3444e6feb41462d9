// Shared by the programs of this folder, which run in a project with one version of a framework.
import { openRun } from '@svc-proofs/sdk/adapters';

const who = { engine: JSON.parse(process.argv[2]), agent: { id: 'agent-7' } };
const run = openRun(who);
let parentProofId;
export const options = {
  ...who,
  // Every framework passes a context, and every adapter accepts these details of a call.
  describe: ({ context }) => {
    if (context === undefined) throw new Error('no context');
    const facts = { currency: 'EUR' };
    return { hashed: 'bound', facts, run, toolCallId: 'call-7', parentProofId };
  },
  onAdmitted: ({ proofId }) => (parentProofId = proofId),
  onOutcomeError: ({ error }) => console.error('no outcome recorded', error),
};
export const ran = [];

/** Two tools; the shipped policy forbids the second. */
export const functions = {
  book_table: ({ seats }) => {
    ran.push('book_table');
    return `a table for ${seats}`;
  },
  deleteAuditLog: () => {
    ran.push('deleteAuditLog');
    return 'done';
  },
};
export const calls = { book_table: { seats: 2 }, deleteAuditLog: {} };

/** Prints what the model reads after each call. */
export async function report(call) {
  const read = {};
  for (const [name, args] of Object.entries(calls)) {
    read[name] = await call(name, args).catch((error) => error.message);
  }
  console.log(JSON.stringify({ ran, read }));
}
