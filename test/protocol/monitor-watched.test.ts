import { describe, expect, it } from 'vitest';
import { fromBase64, fromUtf8, utf8 } from '#protocol/bytes';
import { formatCheckpoint, formatTlogProof, parseTlogProof } from '#protocol/checkpoint';
import { parseWatched } from '#protocol/monitor/watch';
import { signNote } from '#protocol/note';
import type { SnapshotEntry } from '#protocol/schemas/log-entry';
import { sha256 } from '../fixtures/leaves.js';
import {
  codes,
  forget,
  log,
  look,
  receipt,
  setAhead,
  store,
  stored,
  tlogProofIn,
  useMonitoredLog,
  watch,
} from '../fixtures/monitored-log.js';
import { logKey, ORIGIN, proofIdOf, testKey } from '../fixtures/public-log.js';
import { receiptEvidence } from '../fixtures/receipt-evidence.js';
import { filesOf, ServedLog } from '../fixtures/served-log.js';

useMonitoredLog();

describe('monitor of watched proofs', () => {
  it('reports a receipt whose proof the log lacks after the merge delay', async () => {
    const watched = [...receipt(0), ...receipt(77)];
    expect(await look({ watched })).toEqual([]);
    setAhead(61_000);
    expect(await look({ watched })).toMatchObject([
      { code: 'proof_omitted', where: proofIdOf(77) },
    ]);
  });

  it('rebuilds the map when the page of a watched proof is damaged', async () => {
    const watched = receipt(0);
    expect(await look({ watched })).toEqual([]);
    setAhead(61_000);
    for (const page of store.pages.values()) page.fill(0);
    expect(await look({ watched })).toEqual([]);
    expect(stored.rebuilt.state).toEqual(log.state);
    expect(stored.watched[proofIdOf(0)]).toMatchObject({ status: 'VALID' });
  });

  it('reports no change and no omission while a damaged map cannot be rebuilt', async () => {
    const watched = [0, 1].flatMap(receipt);
    expect(await look({ watched })).toEqual([]);
    setAhead(61_000);
    for (const page of store.pages.values()) page.fill(0);
    const files = new Map(log.files);
    files.delete(`tile/entries/000.p/${String(log.size)}`);
    expect(codes(await look({ watched, main: filesOf(files) }))).toEqual(['log_damaged']);
    expect(await look({ watched })).toEqual([]);
  });

  it('reports no omission while it cannot read every entry', async () => {
    const watched = receipt(77);
    expect(await look({ watched })).toEqual([]);
    setAhead(61_000);
    await log.append(log.proof(77, log.keys.aep));
    await log.snapshotAll();
    log.files.delete(`tile/entries/000.p/${String(log.size)}`);
    const found = codes(await look({ watched }));
    expect(found).toContain('log_damaged');
    expect(found).not.toContain('proof_omitted');
  });

  it('reports that the log omits the proof of stored evidence, after the declared merge delay', async () => {
    const delayed = (entry: SnapshotEntry) => ({ ...entry, max_merge_delay: 600 });
    await log.snapshotAll(undefined, delayed);
    const logged = receiptEvidence(76, log.keys.aep);
    await log.append(logged.entry);
    await log.snapshotAll(undefined, delayed);
    const omitted = receiptEvidence(77, log.keys.aep);
    const watched = [...watch(logged), ...watch(omitted)];
    setAhead(599_000);
    expect(await look({ watched })).toEqual([]);
    setAhead(601_000);
    const [found] = await look({ watched });
    expect(found).toMatchObject({ code: 'proof_omitted', where: proofIdOf(77) });
    expect(found?.detail).toContain('600 s after its receipt');
  });

  it('does not extend the merge delay of a receipt when the log later declares a longer one', async () => {
    const watched = receipt(77);
    expect(await look({ watched })).toEqual([]);
    await log.snapshotAll(undefined, (entry) => ({ ...entry, max_merge_delay: 600 }));
    setAhead(61_000);
    expect(codes(await look({ watched }))).toEqual(['proof_omitted']);
    const later = receipt(78);
    expect(await look({ watched: later })).toEqual([]);
    setAhead(600_000);
    expect(await look({ watched: later })).toEqual([]);
    setAhead(662_000);
    expect(codes(await look({ watched: later }))).toEqual(['proof_omitted']);
  });

  it('waits at most a day for the proof of a receipt', async () => {
    await log.snapshotAll(undefined, (entry) => ({ ...entry, max_merge_delay: 1e9 }));
    const watched = receipt(77);
    expect(await look({ watched })).toEqual([]);
    setAhead(24 * 60 * 60 * 1000);
    expect(codes(await look({ watched }))).toEqual(['snapshot_expired']);
    setAhead(24 * 60 * 60 * 1000 + 1);
    expect(codes(await look({ watched }))).toContain('proof_omitted');
  });

  it('reports evidence without a signature by an AEP key of the log as unverifiable, not as omitted', async () => {
    setAhead(61_000);
    const genuine = receiptEvidence(77, log.keys.aep);
    const stranger = receiptEvidence(77, testKey());
    const { signatures } = stranger.proof_record.envelope;
    const unsigned = { ...genuine, proof_record: stranger.proof_record };
    const otherSignature = receiptEvidence(77, { ...log.keys.aep, sign: () => signatures[0].sig });
    for (const [evidence, detail] of [
      [stranger, 'the log has no AEP key'],
      [unsigned, 'key_id_mismatch'],
      [otherSignature, 'did not sign the document'],
    ] as const) {
      const found = await look({ watched: watch(evidence) });
      expect(codes(found)).toEqual(['receipt_unverifiable']);
      expect(found[0]?.detail).toContain(detail);
    }
  });

  it('reports a document that contradicts the log, and a checkpoint of a fork', async () => {
    const fork = await ServedLog.open({ keys: log.keys });
    fork.entries[2] = log.entries[3]!;
    await fork.snapshotAll();
    const entry = { proof_id: proofIdOf(0), aep_hash: 'cc'.repeat(32) };
    const tlog_proof = tlogProofIn(fork);
    // Receipt evidence has a tlog-proof, and an export has only the checkpoint.
    const { checkpoint } = parseTlogProof(tlog_proof);
    for (const proved of [{ tlog_proof }, { inclusion: { checkpoint } }]) {
      forget();
      const found = await look({ watched: watch({ entry, ...proved }) });
      expect(codes(found)).toEqual(['log_forked', 'receipt_contradicted']);
    }
  });

  it('reports a watched document only if the log did not sign its checkpoint', async () => {
    const entry = JSON.parse(fromUtf8(log.entries[2]!)) as object;
    const head = { origin: ORIGIN, size: 3, root: fromBase64(log.rootAt(3)) };
    for (const [signer, expected] of [
      [log.keys.log, []],
      [logKey(), ['checkpoint_unverifiable']],
    ] as const) {
      const checkpoint = signNote(formatCheckpoint(head), signer);
      const found = await look({ watched: watch({ entry, inclusion: { checkpoint } }) });
      expect(codes(found)).toEqual(expected);
    }
  });

  it('gives notice of a document with a checkpoint of another log', async () => {
    const [index, former] = [2, logKey('former.example/log')];
    const entry = JSON.parse(fromUtf8(log.entries[index]!)) as object;
    const head = { origin: former.name, size: 3, root: fromBase64(log.rootAt(3)) };
    const checkpoint = signNote(formatCheckpoint(head), former);
    const tlog_proof = formatTlogProof({ index, path: [], checkpoint });
    for (const proved of [{ tlog_proof }, { inclusion: { checkpoint } }]) {
      const found = await look({ watched: watch({ entry, ...proved }) });
      expect(codes(found)).toEqual(['checkpoint_of_other_log']);
    }
  });

  it('parseWatched > rejects a list without an id', () => {
    const list = '# none yet\n';
    expect(parseWatched(sha256, utf8(list), list, 0)).toBeUndefined();
  });

  it('reports each change of the status of a watched proof id', async () => {
    const ids = [0, 1, 2, 3, 4, 78].map((n) => proofIdOf(n)).join('\n');
    const watched = parseWatched(sha256, utf8(ids), ids, 0)!;
    expect(await look({ watched })).toEqual([]);
    expect(Object.values(stored.watched).map(({ status }) => status)).toEqual([
      'VALID',
      'VALID',
      'REVOKED',
      'EXPIRED',
      'BACKEND_LOOKUP_REQUIRED',
      'ABSENT',
    ]);
    await log.append(log.status(0, 'proof'));
    await log.snapshotAll();
    expect(await look({ watched })).toMatchObject([
      { code: 'status_changed', detail: 'from VALID to REVOKED' },
    ]);
  });
});
