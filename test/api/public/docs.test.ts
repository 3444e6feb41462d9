import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { PROBLEMS } from '#api/public/http/problem';
import { OPERATIONS } from '#api/public/operations';
import { checkDocs, hasCurl, pasteAll, readDocs } from '../../fixtures/docs-checks.js';
import { openPublicServers, type PublicServers } from '../../fixtures/public-servers.js';

let facades: PublicServers;

beforeAll(async () => {
  facades = await openPublicServers();
});
afterAll(() => facades.close());

checkDocs(() => facades.good.server.url, PROBLEMS);

describe('documentation example', () => {
  it.skipIf(!hasCurl)(
    'runs when pasted unchanged',
    async () => {
      const { server } = facades.good;
      const { bytes } = await readDocs(server.url);
      const outcomes = await pasteAll(bytes.toString(), {
        SVC_URL: server.url,
        PROOF_ID: facades.proof,
        PACKAGE_ID: facades.packageId,
        SHARE_TOKEN: facades.shareToken,
        TILE: `entries/000.p/${facades.snapshot.registry.all.length}`,
      });
      expect(outcomes.length).toBeGreaterThanOrEqual(OPERATIONS.length);
      expect(outcomes.filter((one) => !one.startsWith('200 '))).toEqual([]);
    },
    120_000,
  );
});
