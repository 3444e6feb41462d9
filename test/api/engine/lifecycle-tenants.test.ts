import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { freshDatabase, type TestDatabase } from '../../fixtures/database.js';
import { startEngine, without, type TestEngine } from '../../fixtures/engine.js';
import { clientOf, revocationBody, type Client } from '../../fixtures/lifecycle.js';
import { openRegistry, type TestRegistry } from '../../fixtures/registry.js';

/**
 * Tenant isolation of lifecycle resources, with and without row-level security: without it, a query
 * that lacks the tenant condition fails the test.
 */
describe.each([{ rowSecurity: true }, { rowSecurity: false }])(
  'another tenant, with row-level security $rowSecurity,',
  ({ rowSecurity }) => {
    let db: TestDatabase;
    let registry: TestRegistry;
    let engine: TestEngine;
    let owner: Client;
    let stranger: Client;
    let proofId: string;
    let packageId: string;
    let tokenHash: string;
    const NOBODYS = '0190f3c8a1b27d3e8f4a5b6c7d8e9f00';

    const shareBody = (members: Record<string, unknown>) => ({
      schema_version: 'svc.lifecycle.share_token_request/1.0',
      ...members,
    });
    const packageBody = (...ids: string[]) => ({
      schema_version: 'svc.lifecycle.package_request/1.0',
      proof_ids: ids,
    });

    beforeAll(async () => {
      db = await freshDatabase();
      if (!rowSecurity) {
        const tables = await db.sql<{ name: string }[]>`
          select relname as name from pg_class where relrowsecurity`;
        for (const { name } of tables) {
          await db.sql`alter table svc.${db.sql(name)} disable row level security`;
        }
      }
      registry = await openRegistry(db);
      engine = await startEngine(registry);
      owner = await clientOf(db, registry, engine, { scopes: ['admin'] });
      stranger = await clientOf(db, registry, engine, { tenantId: 'other', scopes: ['admin'] });
      [proofId = ''] = await registry.admitAll([registry.item()]);
      const made = await owner.post('/v1/packages', packageBody(proofId));
      packageId = String(made.json['package_id']);
      const share = shareBody({ artifact_kind: 'package', package_id: packageId });
      tokenHash = String((await owner.post('/v1/share-tokens', share)).json['token_hash']);
      await owner.post(
        `/v1/proofs/${proofId}/revocations`,
        revocationBody({ artifact_kind: 'trust' }),
      );
    });
    afterAll(async () => {
      await engine.close();
      await db.drop();
    });

    it('gets the response of an unknown id', async () => {
      const asked = [
        (id: string) => stranger.get(`/v1/proofs/${id}/revocations/trust`),
        (id: string) => stranger.post(`/v1/proofs/${id}/revocations`, revocationBody()),
        (id: string) =>
          stranger.post(`/v1/proofs/${id}/revocations`, revocationBody({ artifact_kind: 'trust' })),
        (id: string) =>
          stranger.get(`/v1/packages/${id === proofId ? packageId : `pkg_${NOBODYS}`}`),
        (id: string) =>
          stranger.delete(`/v1/share-tokens/${id === proofId ? tokenHash : '0'.repeat(64)}`),
      ];
      for (const ask of asked) {
        const [theirs, nobodys] = [await ask(proofId), await ask(NOBODYS)];
        expect(theirs.status).toBe(404);
        expect(without(theirs.json, 'request_id')).toEqual(without(nobodys.json, 'request_id'));
      }
    });

    it('cannot share or bundle the proof', async () => {
      const asked = [
        (proof: string) =>
          stranger.post('/v1/share-tokens', shareBody({ artifact_kind: 'proof', proof_id: proof })),
        (proof: string) =>
          stranger.post(
            '/v1/share-tokens',
            shareBody({
              artifact_kind: 'package',
              package_id: proof === proofId ? packageId : `pkg_${NOBODYS}`,
            }),
          ),
        (proof: string) => stranger.post('/v1/packages', packageBody(proof)),
      ];
      for (const ask of asked) {
        const [theirs, nobodys] = [await ask(proofId), await ask(NOBODYS)];
        expect(theirs.status).toBe(422);
        expect(without(theirs.json, 'request_id')).toEqual(without(nobodys.json, 'request_id'));
      }
    });

    it('sees nothing in lists, and the owner loses nothing', async () => {
      const lists = async (client: Client) => [
        (await client.get('/v1/packages')).json['packages'],
        (await client.get('/v1/share-tokens')).json['share_tokens'],
      ];
      expect(await lists(stranger)).toEqual([[], []]);
      expect(await lists(owner)).toMatchObject([
        [{ package_id: packageId }],
        [{ token_hash: tokenHash, revoked_at: null }],
      ]);
      const read = await owner.get(`/v1/proofs/${proofId}/revocations/proof`);
      expect(read.status).toBe(404);
    });
  },
);
