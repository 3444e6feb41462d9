import { fromBase64, toBase64 } from '#protocol/bytes';
import type { Aep } from '#protocol/schemas/aep';
import { admitted, denied, exportOf } from '../worked-log.js';
import { changed, sealed, textOf } from './sealed.js';
import { notAuthentic, trust } from './trust.js';
import type { OfflineVector } from './vector.js';

type Case = [name: string, about: string, document: unknown, fault: string];

const sig = ['envelope', 'signatures', 0, 'sig'] as const;
const payload = ['envelope', 'payload'] as const;
const firstHash = ['inclusion', 'path', 0] as const;
const genuine = exportOf(admitted);

/** The same bytes in a spelling that is not the canonical one: the last character's unused bits set. */
function withTrailingBits(base64: string): string {
  const at = base64.indexOf('=') - 1;
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
  const spelled =
    base64.slice(0, at) + alphabet[alphabet.indexOf(base64[at]!) + 1]! + base64.slice(at + 1);
  if (!Buffer.from(base64, 'base64').equals(Buffer.from(spelled, 'base64'))) {
    throw new Error(`no spelling of the same bytes: ${base64}`);
  }
  return spelled;
}

const encodings: Case[] = [
  [
    'base64-trailing-bits',
    'The signature has bits set that no byte uses: another spelling of the same bytes.',
    changed(sig, withTrailingBits),
    'malformed_base64',
  ],
  [
    'base64-trailing-bits-in-path',
    'Likewise a hash of the path.',
    changed(firstHash, withTrailingBits),
    'malformed_base64',
  ],
  [
    'base64-whitespace',
    'The payload is broken into lines.',
    changed(payload, (text: string) => `${text.slice(0, 76)}\n${text.slice(76)}`),
    'malformed_base64',
  ],
  [
    'base64-no-padding',
    'The padding of the signature is missing.',
    changed(sig, (text: string) => text.replaceAll('=', '')),
    'malformed_base64',
  ],
  [
    'base64-url-alphabet',
    'The signature is in the URL-safe alphabet.',
    changed(sig, (text: string) => text.replaceAll('+', '-').replaceAll('/', '_')),
    'malformed_base64',
  ],
  [
    'base64url-padded',
    'The listed key has padding, which base64url has not here.',
    changed(['keys', 0, 'public_key'], (text: string) => `${text}=`),
    'malformed_base64',
  ],
];

const members: Case[] = [
  ['array', 'An array, and no object.', [], 'malformed_export'],
  [
    'missing-member',
    'The proof record is missing.',
    Object.fromEntries(Object.entries(genuine).filter(([name]) => name !== 'proof_record')),
    'malformed_export',
  ],
  ['unknown-member', 'A status is added.', { ...genuine, status: 'VALID' }, 'unknown_member'],
  [
    'unknown-member-signed',
    'The AEP has a member that the format has not, signed and logged with it.',
    sealedUnknownMember(),
    'unknown_member',
  ],
  [
    'schema-version',
    'A version of the format that does not exist yet.',
    { ...genuine, schema_version: 'svc.registry.proof_export/2.0' },
    'wrong_schema_version',
  ],
  [
    'schema-version-of-aep',
    'The AEP is of another version.',
    changed(['aep', 'schema_version'], () => 'svc.aep/1.1'),
    'wrong_schema_version',
  ],
  [
    'payload-type',
    'The envelope says that it holds something else.',
    changed(['envelope', 'payloadType'], () => 'application/json'),
    'wrong_payload_type',
  ],
  [
    'no-signature',
    'The envelope has no signature.',
    changed(['envelope', 'signatures'], () => []),
    'not_one_signature',
  ],
  [
    'two-signatures',
    'The envelope has the signature twice.',
    changed(['envelope', 'signatures'], ([one]: unknown[]) => [one, one]),
    'not_one_signature',
  ],
  [
    'short-signature',
    'The signature has 63 bytes.',
    changed(sig, (text: string) => toBase64(fromBase64(text).slice(0, 63))),
    'malformed_export',
  ],
  [
    'negative-index',
    'The leaf index is negative.',
    changed(['inclusion', 'leaf_index'], () => -1),
    'malformed_export',
  ],
  [
    'fractional-index',
    'The leaf index is no integer.',
    changed(['inclusion', 'leaf_index'], () => 1.5),
    'malformed_export',
  ],
  [
    'index-as-text',
    'The leaf index is a string.',
    changed(['inclusion', 'leaf_index'], () => '1'),
    'malformed_export',
  ],
  [
    'endless-path',
    'The path has more hashes than any tree has levels.',
    changed(['inclusion', 'path'], ([hash]: string[]) => Array<unknown>(65).fill(hash)),
    'malformed_export',
  ],
  [
    'upper-case-hash',
    'A hash is in upper case.',
    changed(['request_hash'], (text: string) => text.toUpperCase()),
    'malformed_export',
  ],
  [
    'time-with-offset',
    'A time names the same instant in another zone.',
    changed(['entry', 'time'], () => '2026-11-20T18:29:00.123+01:00'),
    'malformed_export',
  ],
  [
    'impossible-time',
    'A time that no calendar has.',
    changed(['entry', 'time'], () => '2026-02-30T17:29:00.123Z'),
    'malformed_export',
  ],
  [
    'unsorted-reasons',
    'The reasons are not sorted.',
    changed(['aep', 'decision', 'reasons'], (reasons: string[]) => ['z', ...reasons]),
    'malformed_export',
  ],
  [
    'foreign-execution-id',
    'The execution id is that of another proof.',
    changed(['aep', 'execution_id'], () => `exec_${denied.proofId}`),
    'malformed_export',
  ],
  [
    'denial-with-trust',
    'A denial that says until when it is to be trusted.',
    {
      ...exportOf(denied),
      aep: { ...denied.aep, valid_until: admitted.aep.valid_until },
    },
    'malformed_export',
  ],
];

function sealedUnknownMember(): unknown {
  const aep = { ...admitted.aep, approved_by: 'nobody' } as Aep;
  return sealed({ aep, payload: Buffer.from(textOf(aep)) });
}

/** Documents that are not the form of an export. */
export const formVectors: OfflineVector[] = [...encodings, ...members].map(
  ([name, about, document, fault]) => ({
    name,
    about,
    trust,
    export: textOf(document),
    expected: notAuthentic(fault),
  }),
);
