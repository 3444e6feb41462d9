import { isDeepStrictEqual } from 'node:util';
import { concat, equalBytes, fromBase64, fromHex, fromUtf8, toHex } from '#protocol/bytes';
import { aepBytes } from '#protocol/aep';
import { canonicalBytes, parseStrict } from '#protocol/json';
import { parseEnvelope } from '#protocol/dsse';
import { parseEntry } from '#protocol/entries';
import { nobleSha256 as sha256 } from '#protocol/hash';
import { verifyOffline, verifyTlogProof } from '#protocol/offline';
import { openLocation } from '#protocol/snapshot/location';
import { pinKeys } from '#protocol/snapshot/trust';
import { parseEvidence } from '#protocol/evidence/verify';
import { parseShare } from '#protocol/evidence/shares';
import { decodeLeaves, decodeRefs, encodeLeaves, encodeRefs, leafOf } from '#protocol/map/page';
import {
  decodeAepKey,
  decodeHistory,
  decodeProof,
  encodeAepKey,
  encodeEvent,
  encodeProof,
} from '#protocol/state/record';
import { decodeEntryBundle, encodeEntryBundle } from '#protocol/tiles';
import { verifyRun } from '#protocol/run';
import { readAep } from '#protocol/verify';
import { nativeCrypto as crypto } from '#runtime/crypto/node';
import { parseBody } from '#api/engine/http/request';
import { verifyApproval, verifyRegistration } from '#protocol/approvals';
import { approvalSchema, registrationSchema } from '#protocol/schemas/approvals';
import { fullLog } from '../fixtures/full-log.js';
import { runPackageOf, runVectors } from '../fixtures/run-vectors.js';
import {
  ACCEPTED,
  parsing,
  admission,
  jsons,
  texts,
  vectors,
  type OfflineVector,
  must,
  type Target,
} from './target.js';

const entries = vectors<{ canonical: string }[]>('log-entry').map(({ canonical }) => canonical);
const envelopes = vectors<{ payload: string; envelope: unknown }[]>('envelope');
const tiles = vectors<{ entries: { content_base64: string } }>('tiles');
const known = admission();
const trust = {
  aepKeys: known.trust.aep_keys,
  log: { vkey: known.trust.log_vkey ?? '', origin: known.trust.log_origin ?? '' },
};
const offline = vectors<OfflineVector[]>('valid/offline');
const proofs = offline.filter(({ name }) => /^tlog-proof-of-leaf/.test(name));
const leaf = proofs[1];

/** The proof id of each close in the vectors, with the proof ids of the members. */
const completeRuns = runVectors.cases
  .filter(({ expected }) => 'complete' in expected && expected.complete)
  .map(({ close, members }) =>
    [close, ...members].map((at) => runVectors.documents[at]!.entry.proof_id),
  );

const nothing = new Uint8Array(0);
const registrations = fullLog.registrations.map((one) => registrationSchema.parse(one));
const ofKind = (kind: string) => fullLog.map.filter(({ key }) => key.startsWith(kind));
const recordsOf = (kind: string) => ofKind(kind).map(({ record }) => fromHex(record));
const mapLeaves = fullLog.map
  .map(({ key, record, history }) =>
    leafOf(sha256, fromHex(key), { record: fromHex(record), history: fromHex(history) }),
  )
  .sort((one, other) => Buffer.compare(one.key, other.key));
const pages = encodeRefs(1, [
  {
    level: 0,
    key: mapLeaves[0]!.key,
    bit: 5,
    count: 2,
    hash: sha256(nothing),
    digest: sha256(nothing),
  },
]);
const [share = nothing] = recordsOf('04');
const shareHash = fromHex((parseStrict(share) as { token_hash: string }).token_hash);
const [evidence] = fullLog.evidence;
const location = {
  schema_version: 'svc.registry.snapshot_location/1.0',
  snapshot: evidence!.snapshot,
  tlog_proof: evidence!.tlog_proof,
  map: { level: 0, digest: 'ab'.repeat(32) },
  shares: null,
  share_change: 0,
};

export const BINARY_TARGETS: readonly Target[] = [
  {
    name: 'log-entry',
    seeds: texts(...entries),
    run: parsing(parseEntry, (entry, input) => {
      must(isDeepStrictEqual(entry, JSON.parse(fromUtf8(input))), 'another entry');
      must(equalBytes(canonicalBytes(entry), input), 'a non-canonical encoding of an entry');
    }),
  },
  {
    name: 'aep',
    seeds: texts(...envelopes.map(({ payload }) => payload)),
    run: (input) => {
      const { aep, isCanonical } = readAep(input);
      if (aep === null || !isCanonical) return aep === null ? 'no AEP' : 'not canonical';
      must(equalBytes(aepBytes(aep), input), 'a non-canonical encoding of an AEP');
      return ACCEPTED;
    },
  },
  {
    name: 'dsse',
    seeds: jsons(...envelopes.map(({ envelope }) => envelope)),
    run: parsing(
      (input) => parseEnvelope(parseStrict(input)),
      ({ payload, signature }, input) => {
        must(signature.length === 64, 'a signature of another length');
        const envelope = parseStrict(input) as { payload: string };
        must(equalBytes(fromBase64(envelope.payload), payload), 'another payload');
      },
    ),
  },
  {
    name: 'entry-bundle',
    seeds: [new Uint8Array(Buffer.from(tiles.entries.content_base64, 'base64')), new Uint8Array()],
    run: parsing(decodeEntryBundle, (found, input) => {
      must(equalBytes(encodeEntryBundle(found), input), 'a non-canonical encoding of a bundle');
    }),
  },
  {
    name: 'proof-record',
    seeds: recordsOf('01'),
    run: parsing(decodeProof, (proof, input) => {
      must(equalBytes(encodeProof(proof), input), 'a non-canonical encoding of a record');
    }),
  },
  {
    name: 'key-record',
    seeds: recordsOf('02'),
    run: parsing(decodeAepKey, (key, input) => {
      must(equalBytes(encodeAepKey(key), input), 'a non-canonical encoding of a record');
    }),
  },
  {
    name: 'history',
    seeds: ofKind('01').map(({ history }) => fromHex(history)),
    run: parsing(decodeHistory, (events, input) => {
      must(
        equalBytes(concat(...events.map(encodeEvent)), input),
        'a non-canonical encoding of events',
      );
    }),
  },
  {
    name: 'share-record',
    seeds: [share],
    run: parsing(
      (input) => parseShare({ record: input, history: nothing }, shareHash),
      (shown) => must(shown.token_hash === toHex(shareHash), "another token's record"),
    ),
  },
  {
    name: 'map-page',
    seeds: [encodeLeaves(mapLeaves)],
    run: parsing(
      (input) => decodeLeaves(sha256, input),
      (leaves, input) => must(equalBytes(encodeLeaves(leaves), input), 'another page'),
    ),
  },
  {
    name: 'map-page-of-pages',
    seeds: [pages],
    run: parsing(
      (input) => decodeRefs(1, input),
      (refs, input) => must(equalBytes(encodeRefs(1, refs), input), 'another page'),
    ),
  },
  {
    name: 'location',
    seeds: [canonicalBytes(location)],
    run: parsing(
      (input) => openLocation(crypto, input, pinKeys(sha256, [fullLog.log_vkey])),
      ({ snapshot }) =>
        must(isDeepStrictEqual(snapshot, location.snapshot), 'a snapshot that is not in the log'),
    ),
  },
  {
    name: 'evidence',
    seeds: fullLog.evidence.map((one) => canonicalBytes(one as never)),
    run: parsing(
      (input) => parseEvidence(input),
      (found, input) => must(isDeepStrictEqual(found, parseStrict(input)), 'another document'),
    ),
  },
  {
    name: 'approval',
    seeds: fullLog.approvals.map(({ envelope }) => canonicalBytes(envelope as never)),
    run: parsing(
      (input) => parseBody(approvalSchema, input),
      (approval) => {
        const isSigned = registrations.some((one) => verifyApproval(crypto, approval, one));
        const isKnown = fullLog.approvals.some(({ envelope }) =>
          isDeepStrictEqual(envelope.statement, approval.statement),
        );
        must(!isSigned || isKnown, 'an unsigned statement verifies');
      },
    ),
  },
  {
    name: 'registration',
    seeds: registrations.map((one) => canonicalBytes(one)),
    run: parsing(
      (input) => parseBody(registrationSchema, input),
      (registration) => {
        const isKnown = registrations.some((one) =>
          isDeepStrictEqual({ ...registration, signature: one.signature }, one),
        );
        must(
          isKnown || !verifyRegistration(crypto, registration),
          'an unsigned registration verifies',
        );
      },
    ),
  },
  {
    name: 'offline-export',
    seeds: texts(...offline.flatMap((one) => one.export ?? [])),
    run: (input) => {
      const result = verifyOffline(input, trust, crypto);
      if (!result.decidable) return result.cause;
      const [fault] = result.faults;
      if (!result.authentic) return fault?.code ?? 'no fault code';
      const document = parseStrict(input) as Record<string, unknown>;
      // Only the documents of the vectors are signed under these keys.
      const signed = texts(...offline.flatMap((one) => one.export ?? [])).map(
        (one) => parseStrict(one) as Record<string, unknown>,
      );
      must(
        signed.some((one) => isDeepStrictEqual(one['aep'], document['aep'])),
        'an unsigned AEP',
      );
      must(
        !result.included ||
          signed.some((one) => isDeepStrictEqual(one['entry'], document['entry'])),
        'an entry that is not in the log',
      );
      return 'accepted';
    },
  },
  {
    name: 'run-package',
    seeds: texts(...runVectors.cases.map(runPackageOf)),
    run: (input) => {
      const result = verifyRun(input, trust, crypto);
      if (!result.decidable) return result.cause;
      if (!result.complete) return result.faults[0]?.code ?? 'no fault code';
      const found = [result.close, ...result.members!].map((one) => one?.proof_id);
      must(
        completeRuns.some((ids) => isDeepStrictEqual(ids, found)),
        'a run of other proofs',
      );
      return 'accepted';
    },
  },
  {
    name: 'offline-tlog-proof',
    seeds: texts(...proofs.flatMap((one) => one.tlog_proof ?? [])),
    run: (input) => {
      const result = verifyTlogProof(input, leaf?.entry ?? '', trust, crypto);
      if (!result.decidable) return result.cause;
      if (!result.included) return result.faults[0]?.code ?? 'no fault code';
      must(result.leafIndex === 1, 'the leaf has another index');
      return 'accepted';
    },
  },
];
