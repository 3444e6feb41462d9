import { buildReceipt, proofRecordHash } from '#protocol/aep';
import { toBase64Url, utf8 } from '#protocol/bytes';
import { admitted, denied, exportOf } from '../worked-log.js';
import { sha256 } from '../leaves.js';
import { changed, replaced, sealed, strangerKey, textOf } from './sealed.js';
import { notAuthentic, trust } from './trust.js';
import type { OfflineVector } from './vector.js';

type Case = [name: string, about: string, document: unknown, fault: string];

const genuine = exportOf(admitted);
const other = exportOf(denied);
const canonical = textOf(admitted.aep);
const wrong = '0'.repeat(64);

const envelopes: Case[] = [
  [
    'altered-action',
    'The AEP that is shown names another action than the one that was signed.',
    changed(['aep', 'subject', 'action'], () => 'DELETE_AUDIT_LOG'),
    'payload_mismatch',
  ],
  [
    'altered-effect',
    'A denial is shown as an admission.',
    {
      ...other,
      aep: {
        ...other.aep,
        decision: { ...other.aep.decision, effect: 'ADMIT' },
        valid_until: genuine.aep.valid_until,
      },
    },
    'payload_mismatch',
  ],
  [
    'swapped-envelope',
    'The envelope is that of another proof.',
    { ...genuine, envelope: other.envelope },
    'payload_mismatch',
  ],
  [
    'payload-not-canonical',
    'The payload is signed, hashed and logged with a space in it, which RFC 8785 has not.',
    sealed({ payload: utf8(replaced(canonical, '{"accepted_at"', '{ "accepted_at"')) }),
    'payload_not_canonical',
  ],
  [
    'payload-members-out-of-order',
    'The members of the payload are in another order, signed and logged so.',
    sealed({ payload: utf8(JSON.stringify(admitted.aep)) }),
    'payload_not_canonical',
  ],
  [
    'payload-duplicate-key',
    'The payload has the effect twice, signed and logged so.',
    sealed({
      payload: utf8(replaced(canonical, '"effect":"ADMIT"', '"effect":"DENY","effect":"ADMIT"')),
    }),
    'payload_not_canonical',
  ],
  [
    'payload-escaped',
    'The payload has an escape where RFC 8785 has the character, signed and logged so.',
    sealed({ payload: utf8(replaced(canonical, 'é', '\\u00e9')) }),
    'payload_not_canonical',
  ],
  [
    'payload-no-json',
    'The payload is no JSON, signed and logged so.',
    sealed({ payload: utf8('ADMIT') }),
    'payload_not_canonical',
  ],
  [
    'payload-of-nothing',
    'The payload is empty, signed and logged so.',
    sealed({ payload: new Uint8Array() }),
    'payload_not_canonical',
  ],
];

const identities: Case[] = [
  [
    'foreign-proof-id',
    'The export is filed under another proof id.',
    { ...genuine, proof_id: denied.proofId },
    'proof_id_mismatch',
  ],
  [
    'foreign-proof-id-in-entry',
    'The log entry is of another proof, and in the log so.',
    sealed({ entry: (entry) => ({ ...entry, proof_id: denied.proofId }) }),
    'proof_id_mismatch',
  ],
  [
    'key-id-of-envelope',
    'The envelope names another key than the AEP.',
    changed(['envelope', 'signatures', 0, 'keyid'], () => strangerKey.keyId),
    'key_id_mismatch',
  ],
  [
    'key-id-of-list',
    'The listed key is another than the AEP names.',
    changed(['keys', 0], () => ({
      key_id: strangerKey.keyId,
      public_key: toBase64Url(strangerKey.publicKey),
    })),
    'key_id_mismatch',
  ],
  [
    'key-id-of-listed-key',
    'The listed key is the right one under the id of another.',
    changed(['keys', 0, 'key_id'], () => strangerKey.keyId),
    'key_id_mismatch',
  ],
  [
    'key-under-foreign-id',
    'The listed bytes are not those of the key with that id.',
    changed(['keys', 0, 'public_key'], () => toBase64Url(strangerKey.publicKey)),
    'key_id_mismatch',
  ],
];

const commitments: Case[] = [
  [
    'altered-proof-record',
    'The proof record names another AEP.',
    changed(['proof_record', 'aep_hash'], () => wrong),
    'proof_record_mismatch',
  ],
  [
    'proof-record-of-another',
    'The proof record is that of another proof.',
    { ...genuine, proof_record: other.proof_record },
    'proof_record_mismatch',
  ],
  [
    'proof-record-request-hash',
    'The proof record is about another request, and logged so.',
    sealed({ record: (record) => ({ ...record, request_hash: wrong }) }),
    'proof_record_mismatch',
  ],
  [
    'receipt-of-admission-for-denial',
    'A denial with the receipt of an admission, logged so.',
    sealed({
      aep: denied.aep,
      record: (record) => ({ ...record, response_hash: admittedReceipt(record.request_hash) }),
    }),
    'proof_record_mismatch',
  ],
  [
    'request-hash',
    'The request hash is another than the one in the AEP.',
    { ...genuine, request_hash: wrong },
    'request_hash_mismatch',
  ],
  [
    'response-hash',
    'The receipt is another than the one that follows from the AEP.',
    { ...genuine, response_hash: wrong },
    'response_hash_mismatch',
  ],
  [
    'entry-time',
    'The log entry has another time than the AEP, and is in the log so.',
    sealed({ entry: (entry) => ({ ...entry, time: '2026-11-20T17:29:00.124Z' }) }),
    'entry_time_mismatch',
  ],
  [
    'entry-aep-hash',
    'The log entry commits to another AEP, and is in the log so.',
    sealed({ entry: (entry) => ({ ...entry, aep_hash: denied.record.aep_hash }) }),
    'aep_hash_mismatch',
  ],
  [
    'entry-proof-record-hash',
    'The log entry commits to another proof record, and is in the log so.',
    sealed({
      entry: (entry) => ({
        ...entry,
        proof_record_hash: proofRecordHash(sha256, denied.record),
      }),
    }),
    'proof_record_hash_mismatch',
  ],
];

function admittedReceipt(request_hash: string): string {
  const facts = {
    lane: 'execute',
    proof_id: denied.proofId,
    request_hash,
    effect: 'ADMIT',
  } as const;
  return buildReceipt(sha256, facts).response_hash;
}

/** Documents of which each part is well formed and one does not belong. */
export const partVectors: OfflineVector[] = [...envelopes, ...identities, ...commitments].map(
  ([name, about, document, fault]) => ({
    name,
    about,
    trust,
    export: textOf(document),
    expected: notAuthentic(fault),
  }),
);
