import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ProofEvent } from '#protocol/schemas/proof-view';
import { recordExpiries } from '#workers/verify/expiries';
import { scrub } from '#workers/verify/scrub';
import { startEngine, type TestEngine } from '../fixtures/engine.js';
import { clientOf, type Client } from '../fixtures/lifecycle.js';
import { eventsIn, historyIn, publishedRecord, unsized } from '../fixtures/public-history.js';
import { TENANT } from '../fixtures/registry.js';
import { SqlSnapshot } from '../fixtures/sql-publisher.js';
import { tampering, FLIP } from '../fixtures/tampering.js';
import { useRegistry } from '../fixtures/use-registry.js';

/** Histories from a real Postgres, on the engine API and on the public API. */

describe('status history', () => {
  const { db, registry } = useRegistry('file');
  let engine: TestEngine;
  let client: Client;
  const snapshot = new SqlSnapshot(db);

  beforeAll(async () => {
    engine = await startEngine(registry);
    client = await clientOf(db, registry, engine, { scopes: ['read'] });
  });
  afterAll(async () => {
    await snapshot.close();
    await engine.close();
  });

  const admit = async (overrides: { action?: string } = {}): Promise<string> => {
    const [id = ''] = await registry.admitAll([registry.item(overrides)]);
    return id;
  };
  /** A second call with the same flip restores the row. */
  const { tamper } = tampering({ db, registry });
  const validity = (passport: 'null' | '0'): Promise<unknown> =>
    db.sql`update svc.tenant set validity = ${db.sql.json({
      proof: null,
      passport: passport === 'null' ? null : 0,
      certificate: null,
      trust: null,
    })} where tenant_id = ${TENANT}`;
  /** Scrubs from the current position to the end, and once more from the beginning. */
  const verifyAllAgain = async (): Promise<void> => {
    await registry.verifyAll();
    for (let round = 0; round < 2; round++) await scrub(registry.verify, 10_000);
  };
  const privately = async (proofId: string): Promise<ProofEvent[]> => {
    const { status, json } = await client.get(`/v1/proofs/${proofId}`);
    expect(status).toBe(200);
    return json['history'] as ProofEvent[];
  };
  /** As a public API server that has just started loads it. */
  const record = (proofId: string): Promise<Uint8Array> =>
    publishedRecord(snapshot.publicServer(), snapshot.directory, proofId);

  it('is equal on the public API and the engine API, also after a rebuild of the snapshot', async () => {
    const plain = await admit();
    const denied = await admit({ action: 'DELETE_AUDIT_LOG' });
    const revoked = await admit();
    const repaired = await admit();
    const wrongAtFirst = await admit();
    await validity('0');
    const over = await admit();
    await validity('null');
    const revokedAtOnce = await admit();
    await registry.revoke(revokedAtOnce, 'passport');
    await tamper(FLIP.salt, [wrongAtFirst]);
    await registry.verifyAll();
    const first = snapshot.publisher();
    await first.runCycle();
    expect((await record(plain))[0]).toBe(1);

    await recordExpiries(registry.verify, 100);
    await registry.revoke(revoked, 'trust');
    await tamper(FLIP.salt, [repaired]);
    await verifyAllAgain();
    await first.runCycle();

    await registry.revoke(revoked, 'trust');
    await registry.revoke(revoked, 'proof');
    await tamper(FLIP.salt, [repaired]);
    await tamper(FLIP.salt, [wrongAtFirst]);
    await verifyAllAgain();
    await first.runCycle();

    const kinds = async (proofId: string) => (await privately(proofId)).map(({ event }) => event);
    const begun = ['accepted', 'appended'];
    expect(await kinds(plain)).toEqual([...begun, 'verified']);
    expect(await kinds(denied)).toEqual([...begun, 'verified']);
    expect((await kinds(revoked)).slice(2).sort()).toEqual([
      'revoked',
      'revoked',
      'revoked',
      'verified',
    ]);
    expect(await kinds(repaired)).toEqual([...begun, 'verified', 'failed', 'verified']);
    expect(await kinds(wrongAtFirst)).toEqual([...begun, 'failed', 'verified']);
    expect(await kinds(over)).toEqual([...begun, 'verified', 'expired']);

    const all = [plain, denied, revoked, repaired, wrongAtFirst, over, revokedAtOnce];
    const agree = async (): Promise<void> => {
      for (const id of all) {
        const published = await record(id);
        const isPlain = id === plain || id === denied;
        expect(historyIn(published, id) === null).toBe(isPlain);
        const known = await privately(id);
        if (isPlain) expect(eventsIn(published, id)).toEqual(unsized(known));
        else expect(eventsIn(published, id)).toEqual(known);
      }
    };
    await agree();
    await first.close();
    rmSync(join(snapshot.directory, 'lookup'), { recursive: true });
    await snapshot.publisher().runCycle();
    await agree();
  });
});
