// Any async function, admitted before it runs: node examples/adapters/function.mjs [ready.json]
import { isNotAdmitted } from '@svc-proofs/sdk';
import { admitted } from '@svc-proofs/sdk/adapters';
import { options } from './connect.mjs';

const book = admitted(async ({ seats }) => `a table for ${seats}`, {
  ...options,
  tool: 'reservations.create',
  action: 'BOOK_RESERVATION',
});
console.log(await book({ seats: 2 }));

// The shipped policy forbids DELETE_AUDIT_LOG: the adapter derives this action from the name of the tool.
const tidyUp = admitted(async () => console.log('this is never printed'), {
  ...options,
  tool: 'deleteAuditLog',
});
try {
  await tidyUp();
} catch (error) {
  if (!isNotAdmitted(error)) throw error;
  console.log(`${error.code}: ${error.message}`);
}
