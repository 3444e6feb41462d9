// Shared by the programs of this folder, which run in a project with one version of a framework.
export const options = {
  engine: JSON.parse(process.argv[2]),
  agent: { id: 'agent-7' },
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
