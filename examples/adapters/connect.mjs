// Options of every adapter in this folder. Start the service first: `npm start` writes ready.json.
import { readFile } from 'node:fs/promises';

const ready = JSON.parse(await readFile(process.argv[2] ?? '.data/ready.json', 'utf8'));

export const options = {
  engine: {
    engineUrl: ready.engine_url,
    apiKey: ready.api_key,
    tenantId: ready.tenant_id,
  },
  agent: { id: 'concierge-7' },
  onAdmitted: ({ tool, proofId }) => console.log(`${tool} admitted: ${proofId}`),
  onOutcomeError: ({ tool, error }) => console.error(`${tool}: no outcome recorded:`, error),
};
