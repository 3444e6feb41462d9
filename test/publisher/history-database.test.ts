import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createPublicServer } from '#api/public/server';
import { directorySource } from '#api/public/snapshot/source';
import { formatVkey } from '#protocol/note';
import type { ProofEvent } from '#protocol/schemas/proof-view';
import type { ArtifactKind } from '#protocol/status';
import type { Publisher } from '#publisher/publisher';
import { systemClock } from '#runtime/process/clock';
import { nativeSha256 } from '#runtime/crypto/node';
import { logger } from '#runtime/process/log';
import { appendRevocation } from '#sql/lifecycle/entries';
import { recordExpiries } from '#workers/verify/expiries';
import { scrub } from '#workers/verify/scrub';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { startEngine, type TestEngine } from '../fixtures/engine.js';
import { clientOf, type Client } from '../fixtures/lifecycle.js';
import { eventsIn, historyIn, publishedRecord, unsized } from '../fixtures/public-history.js';
import { openRegistry, TENANT, type TestRegistry } from '../fixtures/registry.js';
import { ORIGIN, SNAPSHOT_NAME, testKey } from '../fixtures/snapshot.js';
import { sqlPublisher } from '../fixtures/sql-publisher.js';

/** Histories out of a real Postgres: what the publisher is answered, and what the public reads. */

describe('status history', () => {
  let db: TestDatabase;
  let registry: TestRegistry;
  let engine: TestEngine;
  let client: Client;
  const directory = mkdtempSync(join(tmpdir(), 'svc-snapshot-'));
  const logKey = testKey();
  const snapshotKey = testKey();
  const publishers: Publisher[] = [];

  function publisher(): Publisher {
    const opened = sqlPublisher(db.as('svc_publisher'), { directory, logKey, snapshotKey });
    publishers.push(opened);
    return opened;
  }

  beforeAll(async () => {
    db = await freshDatabase();
    registry = await openRegistry(db);
    engine = await startEngine(registry);
    client = await clientOf(db, registry, engine, { scopes: ['read'] });
  });
  afterAll(async () => {
    for (const one of publishers) await one.close();
    await engine.close();
    await db.drop();
    rmSync(directory, { recursive: true });
  });

  const admit = async (action?: string): Promise<string> => {
    const overrides = action === undefined ? {} : { action };
    const [id = ''] = await registry.admitAll([registry.item(overrides)]);
    return id;
  };
  const revoke = (proofId: string, artifactKind: ArtifactKind): Promise<unknown> =>
    appendRevocation(registry.admin, nativeSha256, {
      proofId,
      artifactKind,
      reason: 'an audit found it wrong',
      actor: 'auditor',
      salt: randomBytes(32).toString('hex'),
    });
  /** Flips a bit of the stored AEP; a second call restores it. */
  const tamper = (proofId: string): Promise<unknown> =>
    db.sql.begin(async (tx) => {
      await tx`set local session_replication_role = replica`;
      await tx`update svc.proof set aep = set_byte(aep, 40, get_byte(aep, 40) # 1)
        where proof_id = ${proofId}::uuid`;
    });
  const validity = (passport: 'null' | '0'): Promise<unknown> =>
    db.sql`update svc.tenant set validity = ${db.sql.json({
      proof: null,
      passport: passport === 'null' ? null : 0,
      certificate: null,
      trust: null,
    })} where tenant_id = ${TENANT}`;
  /** From wherever the scrubber is, and once more from the beginning. */
  const verifyAllAgain = async (): Promise<void> => {
    await registry.verifyAll();
    for (let round = 0; round < 2; round++) await scrub(registry.verify, 10_000);
  };
  const privately = async (proofId: string): Promise<ProofEvent[]> => {
    const { status, json } = await client.get(`/v1/proofs/${proofId}`);
    expect(status).toBe(200);
    return json['history'] as ProofEvent[];
  };
  /** As a facade finds it that has just started. */
  const record = async (proofId: string): Promise<Uint8Array> => {
    const publicServer = createPublicServer({
      snapshotSource: directorySource(directory),
      logVkey: formatVkey(nativeSha256, ORIGIN, logKey.publicKey),
      snapshotVkey: formatVkey(nativeSha256, SNAPSHOT_NAME, snapshotKey.publicKey),
      clock: systemClock,
      log: logger('facade', 'silent'),
    });
    try {
      return await publishedRecord(publicServer, directory, proofId);
    } finally {
      publicServer.close();
    }
  };

  it('is the same for the public and the tenant, also after a rebuild', async () => {
    const plain = await admit();
    const denied = await admit('DELETE_AUDIT_LOG');
    const revoked = await admit();
    const repaired = await admit();
    const wrongAtFirst = await admit();
    await validity('0');
    const over = await admit();
    await validity('null');
    const revokedAtOnce = await admit();
    await revoke(revokedAtOnce, 'passport');
    await tamper(wrongAtFirst);
    await registry.verifyAll();
    const first = publisher();
    await first.runCycle();
    expect((await record(plain))[0]).toBe(1);

    await recordExpiries(registry.verify, 100);
    await revoke(revoked, 'trust');
    await tamper(repaired);
    await verifyAllAgain();
    await first.runCycle();

    await revoke(revoked, 'trust');
    await revoke(revoked, 'proof');
    await tamper(repaired);
    await tamper(wrongAtFirst);
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
    rmSync(join(directory, 'lookup'), { recursive: true });
    await publisher().runCycle();
    await agree();
  });
});
