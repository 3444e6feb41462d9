import { fromBase64Url, toBase64Url } from '#protocol/bytes';
import { parseEntry } from '#protocol/entries';
import { jwkThumbprint } from '#protocol/keys';
import { keyIdSchema } from '#protocol/schemas/primitives';
import { aepKeys, type AepKey } from '#protocol/snapshot/keys';
import { nativeSha256 } from '#runtime/crypto/node';
import { OperatorError } from '#runtime/process/operator-error';
import { appendKeyChange } from '#sql/lifecycle/entries';
import { keyEntries, treeSize } from '#sql/log/log';
import type { Db, Transaction } from '#sql/db/transaction';
import {
  confirmOption,
  required,
  requireConfirmed,
  wholeNumber,
  type Admin,
  type Command,
  type Option,
} from './command.js';
import { readPublicKey } from './vkeys.js';

const CHANGES = ['activate', 'retire', 'compromise'] as const;

const HELP = {
  activate: 'activate an AEP key for log entries from the next log index on',
  retire: 'retire an AEP key; earlier signatures stay valid',
  compromise: 'void every signature of a compromised key from a log index on',
};

const EXAMPLE_KEY = 'kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k';

const EXAMPLE = {
  activate: '/etc/svc/aep.pem',
  retire: `/etc/svc/aep.pem --confirm ${EXAMPLE_KEY}`,
  compromise: `/etc/svc/aep.pem --from-index 48213 --confirm ${EXAMPLE_KEY}`,
};

const FROM_INDEX: Option = {
  value: 'log index',
  required: true,
  help: 'the first log index at which its signatures are void',
};

export const aepKeyCommands: Command[] = [
  ...CHANGES.map((change): Command => {
    const takes = change === 'activate' ? '<key.pem>' : '<key.pem|key_id>';
    return {
      name: `aep-key ${change}`,
      takes: [takes],
      options: {
        ...(change === 'compromise' && { 'from-index': FROM_INDEX }),
        ...(change !== 'activate' && { confirm: confirmOption('key_id') }),
      },
      help: HELP[change],
      example: `aep-key ${change} ${EXAMPLE[change]}`,
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
        if (change !== 'activate') requireConfirmed(given, keyId);
        const leafIndex = await admin.act(async (tx) => {
          const at = await appendKeyChange(tx, nativeSha256, {
            keyId,
            publicKey: toBase64Url(publicKey),
            change,
            ...(fromIndex === undefined ? {} : { fromIndex }),
          });
          if (change === 'retire') await requireActiveKey(tx);
          return at;
        });
        return { document: { key_id: keyId, change, leaf_index: leafIndex } };
      },
    };
  }),
  {
    name: 'aep-key list',
    takes: [],
    help: 'list the AEP keys in the log, with the log positions for which each is valid',
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

/** Ids of the AEP keys that are active at the end of the log. */
export async function activeAepKeys(sql: Db): Promise<string[]> {
  const keys = await loggedKeys(sql);
  return keys
    .filter((key) => key.compromised_from === null && key.retired_at === null)
    .map(({ kid }) => kid);
}

async function loggedKeys(sql: Db): Promise<AepKey[]> {
  const entries = (await keyEntries(sql)).flatMap(({ leafIndex, body }) => {
    const entry = parseEntry(body);
    return entry.type === 'key' ? [{ leafIndex, entry }] : [];
  });
  return aepKeys(nativeSha256, entries);
}

/**
 * Runs in the transaction that appended the change, so that no other key is retired concurrently.
 */
async function requireActiveKey(tx: Transaction): Promise<void> {
  if ((await activeAepKeys(tx)).length > 0) return;
  throw new OperatorError(
    'this is the last active key, and admissions cannot be signed without one: activate its successor first; to stop admissions, use lane lock',
  );
}

/** A key whose file may be gone: the log holds its public key. */
async function knownKey(admin: Admin, keyId: string): Promise<Uint8Array> {
  const key = (await loggedKeys(await admin.database())).find(({ kid }) => kid === keyId);
  if (key === undefined) throw new OperatorError(`the log never activated key ${keyId}`);
  return fromBase64Url(key.x);
}
