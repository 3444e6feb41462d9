import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { fromUtf8, utf8 } from '#protocol/bytes';
import { impliedEvents } from '#protocol/history';
import type { PublicEvent } from '#protocol/schemas/proof-view';
import { ARTIFACT_KINDS, type ArtifactKind } from '#protocol/status';
import { formatTime } from '#protocol/time';
import type { Publisher } from '#publisher/publisher';
import type { RegistryView } from '#publisher/registry/sql-registry';
import { FatalPublishError } from '#publisher/errors';
import {
  eventsIn,
  historyIn,
  proofBodyIn,
  publishedRecord,
  eventLines,
  unsized,
} from '../fixtures/public-history.js';
import { START, TestSnapshot } from '../fixtures/snapshot.js';

/** Status histories of proofs, as published in their records. */

let snapshot: TestSnapshot;
let publisher: Publisher;
beforeEach(() => {
  snapshot = new TestSnapshot();
  publisher = snapshot.publisher();
});
afterEach(() => snapshot.close());

const REASON = 'a'.repeat(64);
const after = (ms: number): string => formatTime(START + ms);

/** Every step has a time of its own. */
function pass(ms = 1000): void {
  snapshot.clock.at += ms;
}

function record(proofId: string): Promise<Uint8Array> {
  return publishedRecord(snapshot.publicServer(), snapshot.directory, proofId);
}

async function recorded(proofId: string): Promise<PublicEvent[] | null> {
  return historyIn(await record(proofId), proofId);
}

const linesOf = async (proofId: string): Promise<string[]> => eventLines(await recorded(proofId));

async function bodyOf(proofId: string) {
  return proofBodyIn(await record(proofId), proofId);
}

async function readable(proofId: string): Promise<PublicEvent[]> {
  return unsized(eventsIn(await record(proofId), proofId));
}

function recordQueries(): (keyof RegistryView)[] {
  const queries: (keyof RegistryView)[] = [];
  snapshot.registry.onCall = (what) => queries.push(what);
  return queries;
}

describe('proof without events after its verification', () => {
  it('needs no extra query and no extra byte', async () => {
    const { registry } = snapshot;
    const [id, other] = registry.addProofs(2);
    pass();
    registry.verify();
    const queries = recordQueries();
    await publisher.runCycle();
    expect(queries).not.toContain('verdictHistories');
    const before = await record(id!);
    expect(before[0]).toBe(1);
    const { verification, integrity } = await bodyOf(id!);
    expect(impliedEvents(integrity, verification.verified_at)).toEqual([
      { event: 'accepted', at: after(1) },
      { event: 'appended', leaf_index: 1 },
      { event: 'verified', at: after(1000) },
    ]);

    // Not for its neighbours' sake either, and not when it is found right once more.
    registry.revoke(other!);
    registry.recordVerdict(id!, { outcome: 'pass' });
    registry.verify();
    expect(await publisher.runCycle()).toMatchObject({ changedRecords: 1 });
    expect(await record(id!)).toEqual(before);
  });
});

describe('history of a published proof', () => {
  it('is complete when the proof is revoked in the cycle that publishes it', async () => {
    const { registry } = snapshot;
    const [id, plain] = registry.addProofs(2);
    pass();
    registry.revoke(id!, 'passport');
    pass();
    registry.revoke(id!, 'proof');
    pass();
    registry.verify();
    const queries = recordQueries();
    await publisher.runCycle();
    expect(queries.filter((what) => what === 'verdictHistories')).toHaveLength(1);
    expect(await recorded(id!)).toEqual([
      { event: 'accepted', at: after(1) },
      { event: 'appended', leaf_index: 1 },
      {
        event: 'revoked',
        at: after(1000),
        artifact: 'passport',
        leaf_index: 3,
        reason_hash: REASON,
      },
      { event: 'revoked', at: after(2000), artifact: 'proof', leaf_index: 4, reason_hash: REASON },
      { event: 'verified', at: after(3000), log_size: 5 },
    ]);
    expect(await recorded(plain!)).toBeNull();
  });

  it('grows with every revocation, even without a change of status', async () => {
    const { registry } = snapshot;
    const id = registry.addProof();
    registry.verify();
    await publisher.runCycle();
    for (const kind of ['certificate', 'trust', 'certificate', 'proof'] as const) {
      pass();
      registry.revoke(id, kind);
      registry.verify();
      expect(await publisher.runCycle()).toMatchObject({ changedRecords: 1 });
    }
    expect(await linesOf(id)).toEqual([
      'verified 0',
      'revoked 1000 certificate',
      'revoked 2000 trust',
      'revoked 3000 certificate',
      'revoked 4000 proof',
    ]);
  });

  it('contains the expiry of each artifact once', async () => {
    const { registry } = snapshot;
    const id = registry.addProof();
    registry.verify();
    await publisher.runCycle();
    pass();
    registry.recordVerdict(id, { expired: ['certificate'] });
    await publisher.runCycle();
    expect(await linesOf(id)).toEqual(['verified 0', 'expired 1000 certificate']);
    pass();
    registry.recordVerdict(id, { expired: ['certificate', 'passport', 'proof'] });
    await publisher.runCycle();
    expect(await linesOf(id)).toEqual([
      'verified 0',
      'expired 1000 certificate',
      'expired 2000 passport,proof',
    ]);
    // The history keeps the first verification; the body has only the last one.
    const { verification } = await bodyOf(id);
    expect(verification).toMatchObject({
      verification_status: 'EXPIRED',
      verified_at: after(2000),
    });
  });

  it('contains a failure and its repair', async () => {
    const { registry } = snapshot;
    const [atFirst, later] = registry.addProofs(2);
    registry.recordVerdict(atFirst!, { outcome: 'fail', failedChecks: ['signature', 'inclusion'] });
    registry.verify();
    await publisher.runCycle();
    expect(await linesOf(atFirst!)).toEqual(['failed 0 signature,inclusion']);
    expect(await recorded(later!)).toBeNull();
    pass();
    registry.recordVerdict(later!, { outcome: 'fail', failedChecks: ['aep_hash'] });
    await publisher.runCycle();
    expect(await linesOf(later!)).toEqual(['verified 0', 'failed 1000 aep_hash']);
    for (const id of [atFirst!, later!]) {
      pass();
      registry.recordVerdict(id, { outcome: 'pass' });
    }
    await publisher.runCycle();
    expect(await linesOf(atFirst!)).toEqual(['failed 0 signature,inclusion', 'verified 2000']);
    expect(await linesOf(later!)).toEqual(['verified 0', 'failed 1000 aep_hash', 'verified 3000']);
    expect((await bodyOf(later!)).verification.verification_status).toBe('VALID');
  });

  it('is rewritten only for an event', async () => {
    const { registry } = snapshot;
    const id = registry.addProof();
    registry.revoke(id);
    registry.verify();
    await publisher.runCycle();
    pass();
    registry.recordVerdict(id, { outcome: 'fail' });
    expect(await publisher.runCycle()).toMatchObject({ changedRecords: 1 });
    expect((await bodyOf(id)).verification.verification_status).toBe('REVOKED');
    const events = ['revoked 0 proof', 'failed 1000 aep_hash'];
    expect((await linesOf(id)).slice(1)).toEqual(events);
    const before = await record(id);
    for (let round = 0; round < 3; round++) {
      pass();
      registry.recordVerdict(id, { outcome: 'fail' });
      expect(await publisher.runCycle()).toMatchObject({ changedRecords: 0 });
    }
    expect(await record(id)).toEqual(before);
  });

  it('contains no entry beyond the published tree', async () => {
    const { registry } = snapshot;
    const id = registry.addProof();
    registry.verify();
    await publisher.runCycle();
    pass();
    registry.revoke(id, 'trust');
    registry.recordVerdict(id, { outcome: 'fail' });
    await publisher.runCycle();
    expect(await linesOf(id)).toEqual(['verified 0', 'failed 1000 aep_hash']);
    registry.verify();
    await publisher.runCycle();
    expect(await linesOf(id)).toEqual(['verified 0', 'failed 1000 aep_hash', 'revoked 1000 trust']);
  });

  it('agrees with its record when a verdict commits during the cycle', async () => {
    const { registry } = snapshot;
    const [fresh, known] = registry.addProofs(2);
    registry.verify();
    await publisher.runCycle();
    const late = registry.addProof();
    pass();
    registry.recordVerdict(known!, { expired: ['trust'] });
    registry.revoke(late, 'trust');
    registry.verify();
    const found = new Set([late, known!]);
    registry.onCall = (what) => {
      if (what !== 'verdictHistories') return;
      for (const id of found) registry.recordVerdict(id, { outcome: 'fail' });
      found.clear();
    };
    await publisher.runCycle();
    for (const id of [late, known!]) {
      const { verification } = await bodyOf(id);
      const asserts = verification.verification_status === 'VALID';
      expect((await linesOf(id)).some((event) => event.startsWith('failed'))).toBe(!asserts);
    }
    await publisher.runCycle();
    for (const id of [late, known!]) {
      expect((await bodyOf(id)).verification.verification_status).toBe('BACKEND_LOOKUP_REQUIRED');
    }
    expect(await recorded(fresh!)).toBeNull();
  });

  it('takes revocations only from the log', async () => {
    const { registry } = snapshot;
    registry.revoke(registry.addProof());
    registry.verify();
    const all = registry.statusEntries.bind(registry);
    registry.statusEntries = async (from, to) =>
      (await all(from, to)).map(({ leafIndex, body }) => ({
        leafIndex,
        body: utf8(fromUtf8(body).replace(REASON, 'b'.repeat(64))),
      }));
    await expect(publisher.runCycle()).rejects.toThrow('did not list the revocation at leaf 2');
  });

  it('is written when a stopping publisher withdraws a failed proof', async () => {
    const { registry } = snapshot;
    const ids = registry.addProofs(300);
    registry.verify();
    await publisher.runCycle();
    pass();
    registry.corruptTile(0, 1, 5);
    registry.addProof();
    registry.verify();
    registry.recordVerdict(ids[3]!, { outcome: 'fail' });
    await expect(publisher.runCycle()).rejects.toThrow(FatalPublishError);
    expect(await linesOf(ids[3]!)).toEqual(['verified 0', 'failed 1000 aep_hash']);
  });
});

describe('proof that fails and passes repeatedly', () => {
  async function flap(proofId: string, times: number): Promise<void> {
    for (let i = 0; i < times; i++) {
      pass();
      snapshot.registry.recordVerdict(proofId, { outcome: i % 2 === 0 ? 'fail' : 'pass' });
    }
    await publisher.runCycle();
  }

  it('keeps the first and last of these events and all others', async () => {
    const proofId = snapshot.registry.addProof();
    snapshot.registry.verify();
    await publisher.runCycle();
    await flap(proofId, 60);
    expect(await linesOf(proofId)).toHaveLength(61);
    snapshot.registry.revoke(proofId);
    snapshot.registry.verify();
    await flap(proofId, 60);
    const [events, { length }] = [await linesOf(proofId), await record(proofId)];
    expect(events).toHaveLength(101);
    expect(events.slice(0, 2)).toEqual(['verified 0', 'failed 1000 aep_hash']);
    expect(events.slice(48, 52)).toEqual([
      'verified 48000',
      'failed 49000 aep_hash',
      'revoked 60000 proof',
      'failed 71000 aep_hash',
    ]);
    expect(events.at(-1)).toBe('verified 120000');

    // It stays REVOKED, so only the history shows the further events.
    await flap(proofId, 2000);
    expect((await linesOf(proofId)).at(-1)).toBe('verified 2120000');
    const again = await record(proofId);
    expect(again.length).toBeLessThan(length + 1000);
    expect(await publisher.runCycle()).toMatchObject({ changedRecords: 0 });

    // A first record needs no further event.
    const facts = [(await recorded(proofId))!, again] as const;
    rmSync(join(snapshot.directory, 'lookup'), { recursive: true });
    await publisher.runCycle();
    expect(await recorded(proofId)).toEqual(facts[0]);
  });
});

describe('published event', () => {
  it('stays published when the registry lost it', async () => {
    const { registry } = snapshot;
    const [plain, eventful] = registry.addProofs(2);
    registry.verify();
    await publisher.runCycle();
    pass();
    registry.recordVerdict(eventful!, { outcome: 'fail' });
    registry.revoke(eventful!, 'passport');
    registry.verify();
    await publisher.runCycle();
    const before = await linesOf(eventful!);
    expect(before).toEqual(['verified 0', 'failed 1000 aep_hash', 'revoked 1000 passport']);

    pass();
    const kept = snapshot.clock.at;
    const all = registry.verdictHistories.bind(registry);
    registry.verdictHistories = async (leaves) => {
      const histories = await all(leaves);
      const left = [...histories].map(
        ([leaf, rows]) => [leaf, rows.filter((row) => row.verifiedAt >= kept)] as const,
      );
      return new Map(left);
    };
    registry.statusEntriesOf = () => Promise.resolve([]);
    for (const id of [plain!, eventful!]) {
      registry.recordVerdict(id, { outcome: 'fail', expired: ['trust'] });
    }
    await publisher.runCycle();
    expect(await linesOf(plain!)).toEqual([
      'verified 0',
      'failed 2000 aep_hash',
      'expired 2000 trust',
    ]);
    expect(await linesOf(eventful!)).toEqual([...before, 'expired 2000 trust']);
  });

  it('is the same in a rebuilt snapshot', async () => {
    const { registry } = snapshot;
    const ids = registry.addProofs(40);
    registry.verify();
    await publisher.runCycle();
    const over = new Map<string, ArtifactKind[]>();
    // Something else becomes of each, in another order, and it is published in between.
    for (let round = 0; round < 12; round++) {
      for (const [i, id] of ids.entries()) {
        if ((i * 7 + round * 5) % 11 > 2) continue;
        pass(1 + (i % 3));
        const kind = ARTIFACT_KINDS[(i + round) % 4]!;
        if ((i + round) % 3 === 0) registry.revoke(id, kind);
        else {
          if ((i + round) % 3 === 1) over.set(id, [...new Set([...(over.get(id) ?? []), kind])]);
          const outcome = (i * round) % 2 === 0 ? 'pass' : 'fail';
          registry.recordVerdict(id, { outcome, expired: over.get(id) ?? [] });
        }
      }
      ids.push(registry.addProof());
      if (round % 2 === 0) registry.verify();
      await publisher.runCycle();
    }
    registry.verify();
    await publisher.runCycle();
    const grown = await Promise.all(ids.map(readable));
    const versions = await Promise.all(ids.map(async (id) => (await record(id))[0]));
    expect(new Set(versions)).toEqual(new Set([1, 2]));

    await publisher.close();
    rmSync(join(snapshot.directory, 'lookup'), { recursive: true });
    await snapshot.publisher().runCycle();
    expect(await Promise.all(ids.map(readable))).toEqual(grown);
  });
});
