import { isDeepStrictEqual } from 'node:util';
import { concat, equalBytes, fromBase64, fromHex, fromUtf8, toHex, utf8 } from '#protocol/bytes';
import { aepBytes } from '#protocol/aep';
import { canonicalBytes, parseStrict } from '#protocol/json';
import { parseEnvelope } from '#protocol/dsse';
import { parseEntry } from '#protocol/entries';
import { nobleSha256 as sha256 } from '#protocol/hash';
import { verifyOffline, verifyTlogProof } from '#protocol/offline';
import { decodeIndexPart, encodeIndexPart, packRows } from '#protocol/snapshot/index-part';
import { openManifest } from '#protocol/snapshot/manifest';
import { encodeRecord, RECORD_KINDS, recordBody, recordHistory } from '#protocol/snapshot/record';
import { encodeShare, openShare } from '#protocol/snapshot/share';
import { pinKeys } from '#protocol/snapshot/trust';
import { decodeEntryBundle, encodeEntryBundle } from '#protocol/tiles';
import { readAep } from '#protocol/verify';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
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
const checkpoint = vectors<{ vkey: string; note: string }>('checkpoint');
const crypto = { sha256: nativeSha256, verify: nativeVerify };
const known = admission();
const trust = {
  aepKeys: known.trust.aep_keys,
  log: { vkey: known.trust.log_vkey ?? '', origin: known.trust.log_origin ?? '' },
};
const offline = vectors<OfflineVector[]>('valid/offline');
const proofs = offline.filter(({ name }) => /^tlog-proof-of-leaf/.test(name));
const leaf = proofs[1];

const ID = '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f';
const record = encodeRecord({ id: ID, parts: { proof: '"p"', trust: '"t"' }, tail: '}' });
const withHistory = encodeRecord({ id: ID, parts: { proof: '"p"' }, tail: '}', history: '[]' });
const hash = sha256(utf8('token'));
const share = encodeShare({
  schema_version: 'svc.public_verification.share/1.0',
  token_hash: toHex(hash),
  artifact_kind: 'proof',
  proof_id: ID,
});
const rows = packRows([
  {
    id: ID,
    file: 'ab'.repeat(32),
    fileBytes: 99,
    offset: 0,
    length: 99,
    leafIndex: 3,
    proofNumber: 2,
    digest: new Uint8Array(16),
  },
]);
const { bytes: partBytes, residentBytes } = encodeIndexPart(sha256, rows);

/** A manifest entry for arbitrary bytes, as if the publisher had signed them: the worst case. */
function pinOf(bytes: Uint8Array) {
  return {
    bytes: bytes.length,
    resident_bytes: residentBytes,
    resident_sha256: toHex(sha256(bytes.subarray(0, residentBytes))),
    entries: 1,
    files: 1,
    least: ID,
    greatest: ID,
  };
}

export const BINARY_TARGETS: readonly Target[] = [
  {
    name: 'log-entry',
    seeds: texts(...entries),
    run: parsing(parseEntry, (entry, input) => {
      must(isDeepStrictEqual(entry, JSON.parse(fromUtf8(input))), 'another entry');
      must(equalBytes(canonicalBytes(entry), input), 'a second spelling of an entry');
    }),
  },
  {
    name: 'aep',
    seeds: texts(...envelopes.map(({ payload }) => payload)),
    run: (input) => {
      const { aep, isCanonical } = readAep(input);
      if (aep === null || !isCanonical) return aep === null ? 'no AEP' : 'not canonical';
      must(equalBytes(aepBytes(aep), input), 'a second spelling of an AEP');
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
      must(equalBytes(encodeEntryBundle(found), input), 'a second spelling of a bundle');
    }),
  },
  {
    name: 'snapshot-record',
    seeds: [record, withHistory],
    run: parsing(
      (input) => {
        const id = fromHex(ID);
        return {
          bodies: RECORD_KINDS.map((kind) => recordBody(input, id, kind)),
          history: recordHistory(input, id),
        };
      },
      ({ bodies, history }, input) => {
        const length = bodies.reduce(
          (sum, body) => sum + (body?.part.length ?? 0),
          history?.length ?? 0,
        );
        must(length <= input.length, 'the parts exceed the record');
      },
    ),
  },
  {
    name: 'share-record',
    seeds: [share],
    run: parsing(
      (input) => openShare(input, hash),
      (shown) => must(shown.token_hash === toHex(hash), "another token's record"),
    ),
  },
  {
    name: 'index-part',
    seeds: [partBytes],
    run: parsing(
      (input) => decodeIndexPart(sha256, input, pinOf(input)),
      (found) => must(found.high.length === 1, 'the number of rows differs'),
    ),
  },
  {
    name: 'manifest',
    seeds: [
      utf8(checkpoint.note),
      concat(utf8('svc.public_verification.snapshot/1.0\n{}\n\n'), utf8(checkpoint.note)),
    ],
    run: parsing(
      (input) =>
        openManifest(nativeVerify, input, {
          log: pinKeys(sha256, [checkpoint.vkey]),
          snapshot: pinKeys(sha256, [checkpoint.vkey]),
        }),
      // The log key never signed a manifest.
      () => must(false, 'an unsigned manifest'),
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
