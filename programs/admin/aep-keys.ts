import { fromBase64Url, toBase64Url } from '#protocol/bytes';
import { parseEntry } from '#protocol/entries';
import { jwkThumbprint } from '#protocol/keys';
import { keyIdSchema } from '#protocol/schemas/primitives';
import { aepKeys, type AepKey } from '#protocol/snapshot/keys';
import { nativeSha256 } from '#runtime/crypto';
import { OperatorError } from '#runtime/operator-error';
import { appendKeyChange } from '#sql/lifecycle';
import { keyEntries, treeSize } from '#sql/log';
import type { Pool } from '#sql/db';
import { required, wholeNumber, type Admin, type Command } from './command.js';
import { readPublicKey } from './public-key.js';

const CHANGES = ['activate', 'retire', 'compromise'] as const;

const HELP = {
  activate: 'let signatures of an AEP key count from the next log index on',
  retire: 'let them count no more; what it signed before stays good',
  compromise: 'void every signature of the key from a log index on',
};

export const aepKeyCommands: Command[] = [
  ...CHANGES.map((change): Command => {
    const takes = change === 'activate' ? '<key.pem>' : '<key.pem|key_id>';
    return {
      name: `aep-key ${change}`,
      takes: [takes],
      ...(change === 'compromise'
        ? {
            options: {
              'from-index': {
                value: 'log index',
                required: true as const,
                help: 'the first log index at which its signatures are void',
              },
            },
          }
        : {}),
      help: HELP[change],
      example: `aep-key ${change} /etc/svc/aep.pem${change === 'compromise' ? ' --from-index 48213' : ''}`,
      run: async (admin, given) => {
        const fromIndex =
          change === 'compromise'
            ? wholeNumber(required(given, 'from-index'), 0, Number.MAX_SAFE_INTEGER)
            : undefined;
        const said = given.argument(0);
        const publicKey =
          change !== 'activate' && keyIdSchema.safeParse(said).success
            ? await knownKey(admin, said)
            : await readPublicKey(said);
        const keyId = jwkThumbprint(nativeSha256, publicKey);
        const leafIndex = await admin.act((tx) =>
          appendKeyChange(tx, nativeSha256, {
            keyId,
            publicKey: toBase64Url(publicKey),
            change,
            ...(fromIndex === undefined ? {} : { fromIndex }),
          }),
        );
        return { document: { key_id: keyId, change, leaf_index: leafIndex } };
      },
    };
  }),
  {
    name: 'aep-key list',
    takes: [],
    help: 'every AEP key that the log knows, and the log positions that it is good for',
    example: 'aep-key list',
    run: async (admin) => {
      const sql = await admin.database();
      const [keys, size] = [await loggedKeys(sql), await treeSize(sql)];
      return {
        document: keys.map((key) => ({
          key_id: key.kid,
          state:
            key.compromised_from !== null
              ? 'compromised'
              : key.retired_at !== null
                ? 'retired'
                : 'active',
          activated_at: key.activated_at,
          retired_at: key.retired_at,
          compromised_from: key.compromised_from,
          log_size: size,
        })),
      };
    },
  },
];

/** The ids of the keys whose signatures count at the end of the log. */
export async function activeAepKeys(sql: Pool): Promise<string[]> {
  const keys = await loggedKeys(sql);
  return keys
    .filter((key) => key.compromised_from === null && key.retired_at === null)
    .map(({ kid }) => kid);
}

async function loggedKeys(sql: Pool): Promise<AepKey[]> {
  const entries = (await keyEntries(sql)).flatMap(({ leafIndex, body }) => {
    const entry = parseEntry(body);
    return entry.type === 'key' ? [{ leafIndex, entry }] : [];
  });
  return aepKeys(nativeSha256, entries);
}

/** A key whose file may be gone: the log has its public half. */
async function knownKey(admin: Admin, keyId: string): Promise<Uint8Array> {
  const key = (await loggedKeys(await admin.database())).find(({ kid }) => kid === keyId);
  if (key === undefined) throw new OperatorError(`the log never activated key ${keyId}`);
  return fromBase64Url(key.x);
}
