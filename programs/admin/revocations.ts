import { randomBytes } from 'node:crypto';
import { PROOF_ID_PATTERN } from '#protocol/ids';
import { ARTIFACT_KINDS } from '#protocol/status';
import { nativeSha256 } from '#runtime/crypto/node';
import { appendRevocation } from '#sql/lifecycle/entries';
import { oneOf, required, UsageError, words, type Command } from './command.js';

export const revocationCommands: Command[] = [
  {
    name: 'revoke',
    takes: ['<proof_id>', `<${ARTIFACT_KINDS.join('|')}>`],
    options: {
      reason: {
        value: 'words',
        required: true,
        help: 'stored in the database; only its salted hash is public',
      },
    },
    help: 'revoke an artifact and everything that depends on it, permanently',
    example: 'revoke 019aa2c1e07b7c0f8a3e5d6b7c8d9e0f certificate --reason "issued in error"',
    run: async (admin, given) => {
      const proofId = given.argument(0);
      if (!PROOF_ID_PATTERN.test(proofId)) throw new UsageError('the argument is not a proof id');
      const artifactKind = oneOf(given.argument(1), ARTIFACT_KINDS);
      const reason = words(required(given, 'reason'), 'the reason', 512);
      const leafIndex = await admin.act((tx) =>
        appendRevocation(tx, nativeSha256, {
          proofId,
          artifactKind,
          reason,
          actor: admin.actor,
          salt: randomBytes(32).toString('hex'),
        }),
      );
      return {
        document: { proof_id: proofId, artifact_kind: artifactKind, leaf_index: leafIndex },
      };
    },
  },
];
