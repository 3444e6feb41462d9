import { toBase64 } from '#protocol/bytes';
import { parseCheckpoint, type Checkpoint } from '#protocol/checkpoint';
import { proofEntryBytes } from '#protocol/entries';
import { hashHex } from '#protocol/hash';
import { ID_PREFIX } from '#protocol/ids';
import { leafHash } from '#protocol/merkle';
import type { ProofExport } from '#protocol/schemas/proof-export';
import { nativeSha256 } from '#runtime/crypto/node';
import { exact, field, words, type Field, type Value } from './field.js';

/** Parses the note without verifying it: the reader verifies it with an independently obtained key. */
export function checkpointOf({ inclusion }: ProofExport): Checkpoint {
  const { checkpoint: note } = inclusion;
  return parseCheckpoint(note.slice(0, note.lastIndexOf('\n\n') + 1));
}

export function logFields(document: ProofExport): Field[] {
  const { entry, inclusion, proof_id } = document;
  const { origin, root } = checkpointOf(document);
  return [
    field('Log', exact(origin)),
    field('Entry', exact(ID_PREFIX.registry_entry_id + proof_id)),
    field('Leaf index', exact(String(inclusion.leaf_index))),
    field('Tree size', exact(String(inclusion.tree_size))),
    field('Leaf hash', exact(toBase64(leafHash(nativeSha256, proofEntryBytes(entry))))),
    field('Root hash', exact(toBase64(root))),
    field(
      'Inclusion path',
      ...(inclusion.path.length > 0
        ? inclusion.path.map(exact)
        : [words('empty: it is the only leaf')]),
    ),
    field('Checkpoint', ...noteLines(inclusion.checkpoint)),
  ];
}

/** Keeps the line breaks of the note; the empty line separates text and signatures. */
function noteLines(note: string): Value[] {
  return note
    .replace(/\n$/, '')
    .split('\n')
    .map((line) => exact(line));
}

export function hashFields({ entry, request_hash, response_hash }: ProofExport, json: Uint8Array) {
  return [
    field('Request', exact(request_hash)),
    field('AEP', exact(entry.aep_hash)),
    field('Proof record', exact(entry.proof_record_hash)),
    field('Response', exact(response_hash)),
    field('Attached file', exact(hashHex(nativeSha256, json))),
  ];
}

export function keyFields({ aep, envelope, keys, log_vkey }: ProofExport): Field[] {
  const [{ public_key }] = keys;
  const [{ sig }] = envelope.signatures;
  return [
    field('Key id', exact(aep.key_id)),
    field('Public key', exact(public_key)),
    field('Signature', exact(sig)),
    field('Log key', log_vkey === null ? words('not stated by the engine') : exact(log_vkey)),
    field(
      'Trust',
      words('These fields only identify the keys. Obtain the keys from an independent source.'),
    ),
  ];
}
