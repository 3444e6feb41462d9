import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { impliedEvents } from '#protocol/history';
import type { PublicEvent } from '#protocol/schemas/proof-view';
import { formatTime } from '#protocol/time';
import type { Publisher } from '#publisher/publisher';
import type { RegistryView } from '#publisher/registry/sql-registry';
import { historyIn, proofBodyIn, publishedRecord, eventLines } from '../fixtures/public-history.js';
import { START } from '../fixtures/snapshot.js';
import { useSnapshot } from '../fixtures/use-registry.js';

/** Status histories of proofs, as published in their records. */

const snapshot = useSnapshot();
let publisher: Publisher;
beforeEach(() => {
  publisher = snapshot.publisher();
});

const after = (ms: number): string => formatTime(START + ms);

/** Each step has its own time. */
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

function recordQueries(): (keyof RegistryView)[] {
  const queries: (keyof RegistryView)[] = [];
  snapshot.registry.onCall = (what) => queries.push(what);
  return queries;
}

describe('proof without events since its verification', () => {
  it('needs no additional query and no additional byte in its record', async () => {
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

    // A change of a neighbour or a repeated passing verdict adds no event.
    registry.revoke(other!);
    registry.recordVerdict(id!, { outcome: 'pass' });
    registry.verify();
    expect(await publisher.runCycle()).toMatchObject({ changedRecords: 1 });
    expect(await record(id!)).toEqual(before);
  });
});

describe('history of a published proof', () => {
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

  it("agrees with the proof's record when a verdict commits during the publish cycle", async () => {
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
});

describe('history of a proof that fails and passes repeatedly', () => {
  async function flap(proofId: string, times: number): Promise<void> {
    for (let i = 0; i < times; i++) {
      pass();
      snapshot.registry.recordVerdict(proofId, { outcome: i % 2 === 0 ? 'fail' : 'pass' });
    }
    await publisher.runCycle();
  }

  it('keeps the first and last of these events, and all other events', async () => {
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
  it('stays published when the registry has lost the event', async () => {
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
});
