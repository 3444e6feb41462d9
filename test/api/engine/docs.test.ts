import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { html } from '#api/docs/html';
import { PROBLEMS } from '#api/engine/http/problem';
import { OPERATIONS } from '#api/engine/operations';
import { checkDocs, hasCurl, pasteAll, readDocs } from '../../fixtures/docs-checks.js';
import { established, openEngineWorld, type EngineWorld } from '../../fixtures/engine-world.js';
import { SCENARIOS } from '../../fixtures/operation-scenarios.js';
import { TENANT } from '../../fixtures/registry.js';

let world: EngineWorld;

beforeAll(async () => {
  world = await openEngineWorld();
});
afterAll(() => world.close());

checkDocs(() => world.engine.url, PROBLEMS);

describe('html tag', () => {
  it('escapes every inserted value', () => {
    expect(html`<p title="${'"><script>'}">${"<b>'&"}</p>`.text).toBe(
      '<p title="&quot;&gt;&lt;script&gt;">&lt;b&gt;&#39;&amp;</p>',
    );
  });
});

describe('curl example on the documentation page', () => {
  it.skipIf(!hasCurl)(
    'works when pasted',
    async () => {
      const id = await established(world);
      const made = async (operation: string): Promise<Record<string, unknown>> =>
        (await world.engine.call(await SCENARIOS[operation]!.good(world))).json;
      const { package_id: packageId } = await made('createPackage');
      const { token_hash: tokenHash } = await made('createShareToken');
      const { batch_id: batchId } = await made('createBatch');
      const { bytes } = await readDocs(world.engine.url);
      const outcomes = await pasteAll(bytes.toString(), {
        SVC_URL: world.engine.url,
        SVC_API_KEY: world.key,
        SVC_TENANT_ID: TENANT,
        PROOF_ID: id,
        BATCH_ID: String(batchId),
        PACKAGE_ID: String(packageId),
        TOKEN_HASH: String(tokenHash),
      });
      expect(outcomes.length).toBeGreaterThanOrEqual(OPERATIONS.length);
      // A few name documents of another registry, and only those are rejected.
      const rejected = outcomes.filter((one) => !one.startsWith('2'));
      expect(rejected.filter((one) => !/^(404|422) /.test(one))).toEqual([]);
      expect(rejected.length).toBeLessThanOrEqual(6);
      console.log(rejected.join('\n'));
    },
    120_000,
  );
});
