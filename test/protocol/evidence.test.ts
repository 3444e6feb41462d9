import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { fromBase64, fromHex, fromUtf8, toBase64, toHex, utf8 } from '#protocol/bytes';
import { nobleVerify } from '#protocol/ed25519';
import { answerStatus, proveAnswer } from '#protocol/evidence/answer';
import { buildEvidence } from '#protocol/evidence/build';
import { BY_PATH, type VerdictRoute } from '#protocol/lookup-routes';
import type { ProtocolError } from '#protocol/errors';
import type { Evidence } from '#protocol/evidence/document';
import type { MapQuery } from '#protocol/evidence/lookups';
import { shareMapKey } from '#protocol/evidence/shares';
import { proveState, type EvidenceOptions } from '#protocol/evidence/verify';
import { canonicalize, type JsonValue } from '#protocol/json';
import { valueHash } from '#protocol/map/nodes';
import type { MapValue } from '#protocol/map/page';
import { MapPages, type MapHead } from '#protocol/map/paged-map';
import { COSIGNATURE_TYPE, formatVkey } from '#protocol/note';
import { readLog, type PinnedLog } from '#protocol/offline/trust';
import type { SnapshotEntry } from '#protocol/schemas/log-entry';
import {
  aepKeyMapKey,
  decodeAepKey,
  decodeProof,
  encodeProof,
  proofMapKey,
} from '#protocol/state/record';
import { formatTime } from '#protocol/time';
import { MemoryStore } from '../fixtures/map-store.js';
import { fullLog, LOG_IDS } from '../fixtures/full-log.js';
import { sha256 } from '../fixtures/leaves.js';
import { ORIGIN, proofIdOf, secondsIn, testKey } from '../fixtures/public-log.js';
import { refusal } from '../fixtures/refusal.js';
import { ServedLog } from '../fixtures/served-log.js';

const crypto = { sha256, verify: nobleVerify };
const SNAPSHOT_TIME = Date.parse('2026-11-22T08:31:02.000Z');
const EXPIRED_THROUGH = Date.parse('2026-11-22T08:31:00.000Z');
const MINUTE = 60_000;
const DAY = 24 * 60 * MINUTE;

const pin = (pinned: Partial<PinnedLog> = {}) =>
  readLog(sha256, { vkey: fullLog.log_vkey, origin: ORIGIN, ...pinned })!;
const options: Omit<EvidenceOptions, 'identifier'> = {
  log: pin(),
  now: SNAPSHOT_TIME + MINUTE,
};
/** The identifier that a reader looks up. For a share token, evidence has only the hash of the token. */
const lookedUp = ({ identifier }: Evidence): string =>
  /^[0-9a-f]{64}$/.test(identifier) ? fullLog.token : identifier;
const verify = (evidence: Evidence, changes: Partial<EvidenceOptions> = {}) =>
  proveState(crypto, evidence, { identifier: lookedUp(evidence), ...options, ...changes });
const codeOf = (evidence: Evidence, changes?: Partial<EvidenceOptions>): string =>
  refusal(() => verify(evidence, changes)).code;

const [ofProof, ofAbsent, ofToken, ofPackage, ofNothing] = fullLog.evidence as [
  Evidence,
  Evidence,
  Evidence,
  Evidence,
  Evidence,
];

/** The keys of every log in this file. These logs have the origin of the worked log. */
const { keys } = await ServedLog.open();
const [valid, revoked, absent] = [proofIdOf(0), proofIdOf(2), proofIdOf(99)];
const { token } = fullLog;
/** The time of the snapshots of these logs. */
const SIGNED_AT = Date.parse(secondsIn(10));

type Values = Map<string, MapValue>;
interface Changes {
  values?: (values: Values) => unknown;
  shares?: (values: Values) => unknown;
  /** Changes the description of the log in the snapshot entry. */
  log?: object;
  time?: string;
}
async function signed(requested: string, changes: Changes = {}): Promise<Evidence> {
  const log = await ServedLog.open({ keys });
  log.addShare(token, { artifact_kind: 'passport', id: revoked });
  changes.shares?.(log.shares);
  await log.snapshotAll(
    (values) => changes.values?.(values),
    ({ time, logs: [first], ...entry }) => ({
      ...entry,
      time: changes.time ?? time,
      logs: [{ ...first!, expired_through: time, ...changes.log }],
    }),
  );
  return log.evidenceOf(requested);
}
const witness = formatVkey(sha256, 'w1.example', keys.log.publicKey, COSIGNATURE_TYPE);
const ownPin = { log: pin({ vkey: keys.log.vkey }) };

describe('evidence', () => {
  it('proves presence and absence in the vectors', () => {
    const found = fullLog.evidence.map((evidence) => {
      const { found, index, ageMs, outdated } = verify(evidence);
      expect({ index, outdated }).toEqual({ index: 17, outdated: null });
      // A text that is not an id leads to no log, so the age is that of the snapshot's `time`.
      expect(ageMs).toBe(options.now - (evidence === ofNothing ? SNAPSHOT_TIME : EXPIRED_THROUGH));
      return [...found.proofs].map(([id, proof]) => [id, proof?.proof.revoked]);
    });
    const { revoked, valid, absent } = LOG_IDS;
    expect(found).toEqual([
      [[revoked, 4]],
      [[absent, undefined]],
      [[revoked, 4]],
      [
        [revoked, 4],
        [valid, 0],
      ],
      [],
    ]);
    expect(verify(ofToken).found.share).toMatchObject({ artifact_kind: 'passport', id: revoked });
  });

  it('of the vectors equals, byte for byte, the evidence that the service builds', async () => {
    const store = new MemoryStore();
    const pages = new MapPages(sha256, store, 3);
    const headOf = async (kinds: string): Promise<MapHead> => {
      const own = fullLog.map.filter(({ key }) => kinds.includes(key[1]!));
      const changes = own.map(({ key, record, history }) => ({
        key: fromHex(key),
        value: { record: fromHex(record), history: fromHex(history) },
      }));
      return (await pages.update(null, changes)).head;
    };
    const heads = { map_root: await headOf('12'), shares_root: await headOf('34') };
    for (const evidence of fullLog.evidence) {
      const { snapshot, tlog_proof: tlogProof } = evidence;
      const search = ({ map, key }: MapQuery) => store.search(heads[map], key);
      const own = { snapshot: snapshot as SnapshotEntry, tlogProof };
      expect(buildEvidence(sha256, lookedUp(evidence), search, own)).toEqual(evidence);
    }
  });
});

const flipped = (bytes: Uint8Array, at: number): Uint8Array =>
  bytes.map((byte, i) => (i === at ? byte ^ 1 : byte));
const flip = (text: string, at = 0): string => toBase64(flipped(fromBase64(text), at));

const leafOf = ({ record, history }: { record: string; history: string }) => ({
  key: `01${LOG_IDS.revoked}`,
  value_hash: toHex(valueHash(sha256, fromBase64(record), fromBase64(history))),
});

/** A copy with a different value at a path. */
function altered(evidence: Evidence, path: string, change: (value: never) => unknown): Evidence {
  const copy = structuredClone(evidence);
  const steps = path.split('.');
  const last = steps.pop()!;
  const parent = steps.reduce<unknown>((at, step) => at![step as never], copy) as object;
  Object.assign(parent, { [last]: change(parent[last as never]) });
  return copy;
}

type Lookups = Evidence['lookups'];
/** Lookups that claim the absence of a key that the map has. */
const hidden = ([first]: Lookups) => [
  { path: first!.path, leaf: leafOf(first as { record: string; history: string }) },
];
const resized = (text: string): string => text.replace('\n18\n', '\n19\n');
const to = (value: unknown) => (): unknown => value;

describe('altered evidence', () => {
  it.each<[name: string, Evidence, path: string, change: (value: never) => unknown, code: string]>([
    [
      'an altered record',
      ofProof,
      'lookups.0.record',
      (one: string) => flip(one, 2),
      'wrong_map_root',
    ],
    ['a hidden record', ofProof, 'lookups', hidden, 'malformed_evidence'],
    [
      'another key of a leaf',
      ofAbsent,
      'lookups.0.leaf.key',
      to(`01${LOG_IDS.absent}`),
      'wrong_map_root',
    ],
    ['an empty map', ofAbsent, 'lookups.0', to({ path: '', leaf: null }), 'wrong_map_root'],
    ['another time', ofProof, 'snapshot.time', to('2026-11-22T08:31:03.000Z'), 'not_in_tree'],
    ['a new member of the snapshot', ofProof, 'snapshot.more', to(1), 'malformed_entry'],
    [
      'another entry',
      ofProof,
      'snapshot',
      to(JSON.parse(fullLog.entries[16]!.canonical)),
      'malformed_entry',
    ],
    ['another checkpoint', ofProof, 'tlog_proof', resized, 'bad_signature'],
    [
      'a missing lookup',
      ofPackage,
      'lookups',
      (all: Lookups) => all.slice(0, -1),
      'malformed_evidence',
    ],
    ['a repeated lookup', ofProof, 'lookups', ([a, b]: Lookups) => [a, b, b], 'malformed_evidence'],
    ['a new member', ofProof, 'more', to(1), 'malformed_evidence'],
    ['another identifier', ofProof, 'identifier', to(LOG_IDS.valid), 'wrong_map_root'],
  ])('with %s is rejected', (_name, evidence, path, change, code) => {
    expect(codeOf(altered(evidence, path, change))).toBe(code);
  });

  it('is rejected when the snapshot has a member __proto__, which schemas drop', () => {
    const text = canonicalize(ofProof).replace('"snapshot":{', '$&"__proto__":1,');
    expect(codeOf(JSON.parse(text) as Evidence)).toBe('malformed_entry');
  });

  it('never verifies when its records differ from those of the log', () => {
    const known = fullLog.evidence.map((evidence) => canonicalize(evidence as JsonValue));
    const states = fullLog.evidence.map((evidence) => verify(evidence).found);
    const change = fc.record({
      which: fc.nat(4),
      at: fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
      to: fc.integer({ min: 32, max: 126 }),
    });
    fc.assert(
      fc.property(change, ({ which, at, to }) => {
        const text = known[which]!;
        const place = Math.floor(at * text.length);
        const changed = text.slice(0, place) + String.fromCharCode(to) + text.slice(place + 1);
        const identifier = lookedUp(fullLog.evidence[which]!);
        let proved;
        try {
          proved = proveState(crypto, changed, { ...options, identifier });
        } catch {
          return;
        }
        expect(proved.found).toEqual(states[which]);
        expect(proved.snapshot).toEqual(fullLog.evidence[which]!.snapshot);
      }),
      { numRuns: 400 },
    );
  });
});

describe('evidence', () => {
  it.each<[string, Evidence, Partial<EvidenceOptions>, string]>([
    ['another identifier', ofProof, { identifier: LOG_IDS.valid }, 'wrong_identifier'],
    ['another token', ofToken, { identifier: `share_${'A'.repeat(43)}` }, 'wrong_identifier'],
    ['a log that is not pinned', ofProof, ownPin, 'unknown_signer'],
    ['another origin', ofProof, { log: pin({ origin: 'other.example/log' }) }, 'wrong_origin'],
    [
      'a log key after its retirement',
      ofProof,
      { log: pin({ vkey: [{ vkey: fullLog.log_vkey, from_size: 17 }] }) },
      'unknown_signer',
    ],
    [
      'a quorum that it does not meet',
      ofProof,
      { log: pin({ policy: `witness w1 ${witness}\nquorum w1\n` }) },
      'quorum_not_met',
    ],
    ['a time ahead of the clock', ofProof, { now: SNAPSHOT_TIME - MINUTE - 1 }, 'evidence_ahead'],
    ['a clock that is not a number', ofProof, { now: NaN }, 'evidence_ahead'],
  ])('is rejected for %s', (_name, evidence, changes, code) => {
    expect(codeOf(evidence, changes)).toBe(code);
  });

  const AEP_KEY = toHex(aepKeyMapKey(0, 0));
  const VALID = toHex(proofMapKey(valid));
  const rehashed = (record: Uint8Array): Uint8Array =>
    utf8(fromUtf8(record).replace(/.(?="\}$)/, (last) => (last === '0' ? '1' : '0')));
  const withoutVerdict = (record: Uint8Array): Uint8Array =>
    encodeProof({ ...decodeProof(record), verdict: 'none', verdictSize: null, verifiedAt: null });
  const replace = (key: string, change: (value: MapValue) => object) => {
    return (values: Values) => {
      const value = values.get(key)!;
      values.set(key, { ...value, ...change(value) });
    };
  };
  it.each<[string, Changes, string, string?]>([
    ['another origin of shard 0', { log: { origin: 'other' } }, 'wrong_origin'],
    ['no shard 0', { log: { shard: 1 } }, 'wrong_origin'],
    ['more leaves than precede it', { log: { size: 11 } }, 'malformed_entry'],
    ['a time before 1970', { time: '1969-12-31T23:59:59.999Z' }, 'malformed_entry'],
    [
      'an expiry scan before 1970',
      { log: { expired_through: '1969-12-31T23:59:59.999Z' } },
      'malformed_entry',
      'absent',
    ],
    ['fewer leaves than a record', { log: { size: 2 } }, 'uncovered_record'],
    ['no record of a key', { values: (values) => values.delete(AEP_KEY) }, 'malformed_record'],
    [
      'a history of a key',
      { values: replace(AEP_KEY, () => ({ history: Uint8Array.of(1) })) },
      'malformed_record',
    ],
    [
      'a malformed record',
      { values: replace(VALID, ({ record }) => ({ record: flipped(record, 3) })) },
      'malformed_record',
    ],
    [
      'a verdict that the history lacks',
      { values: replace(VALID, () => ({ history: new Uint8Array(0) })) },
      'malformed_record',
    ],
    [
      'an event of a verdict that the record lacks',
      { values: replace(VALID, ({ record }) => ({ record: withoutVerdict(record) })) },
      'malformed_record',
    ],
    [
      'a share of a token whose hash has the same first half',
      {
        shares: replace(toHex(shareMapKey(sha256(utf8(token)))), ({ record }) => ({
          record: rehashed(record),
        })),
      },
      'malformed_record',
      token,
    ],
  ])('of a snapshot with %s is rejected', async (_name, changes, code, requested = valid) => {
    // The builder of the evidence may throw this error: it runs the reader's checks of records.
    const outcome = signed(requested, changes).then((evidence) => codeOf(evidence, ownPin));
    expect(await outcome.catch(({ code }: ProtocolError) => code)).toBe(code);
  });

  it.each<[string, Changes, age: number, outdated: string | null, number?]>([
    ['just before the snapshot expires', {}, 15 * MINUTE - 1, null],
    ['when the snapshot expires', {}, 15 * MINUTE, 'evidence_expired'],
    ['as old as the reader accepts', {}, MINUTE, null, MINUTE],
    ['older than the reader accepts', {}, MINUTE + 1, 'evidence_too_old', MINUTE],
    [
      '24 hours after an expiry scan',
      { log: { expired_through: formatTime(SIGNED_AT - DAY) } },
      0,
      'evidence_too_old',
    ],
    [
      'less than 24 hours after an expiry scan',
      { log: { expired_through: formatTime(SIGNED_AT - DAY + 1) } },
      0,
      null,
    ],
    ['a minute ahead of the clock', {}, -MINUTE, null],
  ])(
    'always proves a revocation, and other answers only until it is outdated: %s',
    async (_name, changes, age, outdated, maxAgeMs) => {
      const now = SIGNED_AT + age;
      const prove = async (identifier: string, route: VerdictRoute) => {
        const evidence = await signed(identifier, changes);
        return () => proveAnswer(crypto, evidence, route, { identifier, ...ownPin, now, maxAgeMs });
      };
      for (const requested of [valid, absent]) {
        const proved = await prove(requested, BY_PATH.proof);
        if (outdated === null) expect(proved().state.outdated).toBeNull();
        else expect(refusal(proved).code).toBe(outdated);
      }
      const { state, answer } = (await prove(`cert_${revoked}`, BY_PATH.certificate))();
      expect([state.outdated, answerStatus(answer.response)]).toEqual([outdated, 'REVOKED']);
    },
  );
});

it('evidence about a text that is not an id > has the age of the snapshot, not of the last expiry scan', async () => {
  const old = { log: { expired_through: formatTime(SIGNED_AT - DAY) } };
  const now = SIGNED_AT + MINUTE;
  const state = verify(await signed('no such identifier', old), { ...ownPin, now });
  expect(state).toMatchObject({ ageMs: MINUTE, outdated: null });
});

it('evidence > verifies under a retired log key up to the size of its last tree', () => {
  const log = pin({ vkey: [{ vkey: fullLog.log_vkey, from_size: 18 }] });
  expect(verify(ofProof, { log }).outdated).toBeNull();
});

it('evidence of a package > has the signing keys of its members in the order of their map keys', async () => {
  const log = await ServedLog.open({ keys });
  const second = testKey();
  await log.append(log.key('aep', 'activate', second), log.proof(8, second));
  const packageId = `pkg_${proofIdOf(1000)}`;
  log.addPackage(packageId, [proofIdOf(8), valid]);
  await log.snapshotAll();
  const signedBy = log.evidenceOf(packageId).lookups.slice(-2) as { record: string }[];
  const keyIds = signedBy.map(({ record }) => decodeAepKey(fromBase64(record)).keyId);
  expect(keyIds).toEqual([keys.aep.key_id, second.key_id]);
});
