import { createPublicKey, randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { toBase64Url } from '#protocol/bytes';
import { jwkThumbprint } from '#protocol/keys';
import { ARTIFACT_KINDS } from '#protocol/status';
import { nativeSha256 } from '#runtime/crypto';
import { appendKeyChange, appendRevocation } from '#sql/lifecycle';
import { argument, oneOf, required, UsageError, type Command } from './command.js';

const CHANGES = ['activate', 'retire', 'compromise'] as const;

export const logCommands: Command[] = [
  ...CHANGES.map((change): Command => ({
    name: `aep-key ${change}`,
    takes: ['<key.pem>'],
    ...(change === 'compromise'
      ? { options: { 'from-index': { required: true, help: 'first log index that is void' } } }
      : {}),
    help: {
      activate: 'let signatures of an AEP key count from the next log index on',
      retire: 'let them count no more; what it signed before stays good',
      compromise: 'void every signature of the key from a log index on',
    }[change],
    run: async (sql, given) => {
      const publicKey = await readPublicKey(argument(given, 0));
      const keyId = jwkThumbprint(nativeSha256, publicKey);
      const index = await appendKeyChange(sql, nativeSha256, {
        keyId,
        publicKey: toBase64Url(publicKey),
        change,
        ...(change === 'compromise' ? { fromIndex: logIndex(required(given, 'from-index')) } : {}),
      });
      return { key_id: keyId, change, leaf_index: index };
    },
  })),
  {
    name: 'revoke',
    takes: ['<proof_id>', `<${ARTIFACT_KINDS.join('|')}>`],
    options: {
      reason: { required: true, help: 'kept in the database; only its salted hash is public' },
      actor: { required: true, help: 'who revokes' },
    },
    help: 'revoke an artifact and everything that rests on it, for ever',
    run: async (sql, given) => {
      const proofId = argument(given, 0);
      const kind = oneOf(argument(given, 1), ARTIFACT_KINDS);
      const index = await appendRevocation(sql, nativeSha256, {
        proofId,
        artifactKind: kind,
        reason: required(given, 'reason'),
        actor: required(given, 'actor'),
        salt: randomBytes(32).toString('hex'),
      });
      return { proof_id: proofId, artifact_kind: kind, leaf_index: index };
    },
  },
];

function logIndex(value: string): number {
  if (!/^\d{1,15}$/.test(value)) throw new UsageError(`${value} is not a log index`);
  return Number(value);
}

/** The raw public key of a PEM file, which may hold the public or the private key. */
async function readPublicKey(file: string): Promise<Uint8Array> {
  const { x } = createPublicKey(await readFile(file, 'utf8')).export({ format: 'jwk' });
  if (x === undefined || x.length !== 43) throw new UsageError(`${file} holds no Ed25519 key`);
  return Buffer.from(x, 'base64url');
}
