// Any async function, admitted before it runs. Bring the service up (`npm start`), then:
// node examples/adapters/function.mjs [ready.json]
import { readFile } from 'node:fs/promises';
import { admitted, NotAdmittedError } from 'svc-sdk/adapters';

const ready = JSON.parse(await readFile(process.argv[2] ?? '.data/ready.json', 'utf8'));
const engine = {
  engineUrl: ready.engine_url,
  apiKey: ready.api_key,
  tenantId: ready.tenant_id,
};

const options = {
  engine,
  agent: { id: 'concierge-7' },
  onAdmitted: ({ tool, proofId }) => console.log(`${tool} admitted: ${proofId}`),
  onOutcomeError: ({ tool, error }) => console.error(`${tool}: no outcome recorded:`, error),
};

const book = admitted(async ({ seats }) => `a table for ${seats}`, {
  ...options,
  tool: 'reservations.create',
  action: 'BOOK_RESERVATION',
});
console.log(await book({ seats: 2 }));

// The shipped policy forbids DELETE_AUDIT_LOG, which is what this name stands for.
const tidyUp = admitted(async () => console.log('this is never printed'), {
  ...options,
  tool: 'deleteAuditLog',
});
try {
  await tidyUp();
} catch (error) {
  if (!(error instanceof NotAdmittedError)) throw error;
  console.log(`${error.code}: ${error.message}`);
}
