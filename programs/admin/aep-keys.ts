import { createPublicKey } from 'node:crypto';
import { fromBase64Url, toBase64Url } from '#protocol/bytes';
import { isAepKeyEntry, parseEntry } from '#protocol/entries';
import { jwkThumbprint } from '#protocol/keys';
import { formatVkey } from '#protocol/note';
import { keyIdSchema } from '#protocol/schemas/primitives';
import { aepKeys, type AepKey } from '#protocol/snapshot/keys';
import { nativeSha256 } from '#runtime/crypto/node';
import { isKeyUri } from '#runtime/crypto/key-uri';
import { openSigner } from '#runtime/crypto/signer';
import { OperatorError } from '#runtime/process/operator-error';
import { appendKeyChange } from '#sql/lifecycle/entries';
import { keyEntries, treeSize } from '#sql/log/log';
import type { Db } from '#sql/db/transaction';
import {
  confirmOption,
  readOperatorsFile,
  requireConfirmed,
  UsageError,
  wholeNumber,
  type AddCommand,
  type Admin,
  type Outcome,
} from './command.js';

const EXAMPLE_KEY = 'kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k';

export function addAepKeyCommands(add: AddCommand): void {
  for (const [use, activate, retire] of [
    [
      'aep',
      'Activate an AEP key for log entries from the next log index on',
      'Retire an AEP key; earlier signatures stay valid',
    ],
    [
      'verifier',
      'Activate a verifier key for verdict entries from the next log index on',
      'Retire a verifier key; its earlier verdict entries stay valid',
    ],
  ] as const) {
    const example = `/etc/svc/${use}.pem`;
    add(`${use}-key activate <key.pem>`, activate, example, async (admin, file: string) =>
      changeKey(admin, use, 'activate', await readPublicKey(file)),
    );
    // allowUnknownOption, because one key id in 64 begins with a dash.
    add(
      `${use}-key retire <key.pem|key_id>`,
      retire,
      `${example} --confirm ${EXAMPLE_KEY}`,
      async (admin, key: string, { confirm }: { confirm: string }) =>
        changeKey(admin, use, 'retire', await knownKey(admin, use, key), { confirm }),
    )
      .allowUnknownOption()
      .requiredOption(...confirmOption('key_id'));
  }
  add(
    'aep-key compromise <key.pem|key_id>',
    'Void every signature of a compromised key from a log index on',
    `/etc/svc/aep.pem --from-index 48213 --confirm ${EXAMPLE_KEY}`,
    async (admin, key: string, options: { confirm: string; fromIndex: string }) => {
      const fromIndex = wholeNumber(options.fromIndex, 0, Number.MAX_SAFE_INTEGER);
      const publicKey = await knownKey(admin, 'aep', key);
      return changeKey(admin, 'aep', 'compromise', publicKey, { ...options, fromIndex });
    },
  )
    .allowUnknownOption()
    .requiredOption(
      '--from-index <log index>',
      'the first log index at which its signatures are void',
    )
    .requiredOption(...confirmOption('key_id'));
  add(
    'aep-key list',
    'List the AEP keys in the log, with the log positions for which each is valid',
    '',
    async ({ database }) => {
      const sql = await database();
      const [keys, log_size] = [await loggedKeys(sql), await treeSize(sql)];
      const stateOf = ({ compromised_from, retired_at }: AepKey): string =>
        compromised_from !== null ? 'compromised' : retired_at !== null ? 'retired' : 'active';
      return {
        document: keys.map((key) => {
          const { kid: key_id, activated_at, retired_at, compromised_from } = key;
          const state = stateOf(key);
          return { key_id, state, activated_at, retired_at, compromised_from, log_size };
        }),
      };
    },
  );
  add(
    'vkey <key_name> <key.pem>',
    'Print the C2SP verifier key that readers pin for a log key; needs no database',
    'log.example.org/2026 /etc/svc/log-2.pem',
    async (_admin, name: string, file: string) => {
      if (!/^[^\s+]{1,200}$/.test(name)) {
        throw new UsageError('a key name must not contain spaces or plus signs');
      }
      const vkey = formatVkey(nativeSha256, name, await readPublicKey(file));
      return { document: { vkey }, text: `${vkey}\n` };
    },
  );
}

async function changeKey(
  { act }: Admin,
  use: Use,
  change: 'activate' | 'retire' | 'compromise',
  publicKey: Uint8Array,
  { confirm, fromIndex }: { confirm?: string; fromIndex?: number } = {},
): Promise<Outcome> {
  const keyId = jwkThumbprint(nativeSha256, publicKey);
  if (change !== 'activate') requireConfirmed(confirm, keyId);
  const leafIndex = await act(async (tx) => {
    const at = await appendKeyChange(tx, nativeSha256, {
      use,
      keyId,
      publicKey: toBase64Url(publicKey),
      change,
      ...(fromIndex === undefined ? {} : { fromIndex }),
    });
    // Checked in the same transaction, so that no other key is retired concurrently.
    if (change === 'retire' && (await activeKeys(tx, use)).length === 0) {
      throw new OperatorError(`this is the last active key, and ${WITHOUT_KEY[use]}`);
    }
    return at;
  });
  return { document: { key_id: keyId, change, leaf_index: leafIndex } };
}

type Use = 'aep' | 'verifier';

const WITHOUT_KEY: Record<Use, string> = {
  aep: 'admissions cannot be signed without one: activate its successor first; to stop admissions, use lane lock',
  verifier: 'the verifier appends no verdict without one: activate its successor first',
};

/** Ids of the keys that are active at the end of the log. */
export async function activeKeys(sql: Db, use: Use): Promise<string[]> {
  const entries = await entriesOf(sql, use);
  const ended = entries.flatMap((entry) => (entry.change === 'activate' ? [] : [entry.key_id]));
  return [...new Set(entries.map((entry) => entry.key_id))].filter((id) => !ended.includes(id));
}

async function entriesOf(sql: Db, use: Use) {
  return (await keyEntries(sql)).flatMap(({ body }) => {
    const entry = parseEntry(body);
    return entry.type === 'key' && 'key_id' in entry && entry.use === use ? [entry] : [];
  });
}

export async function loggedKeys(sql: Db): Promise<AepKey[]> {
  const entries = (await keyEntries(sql)).flatMap(({ leafIndex, body }) => {
    const entry = parseEntry(body);
    return isAepKeyEntry(entry) ? [{ leafIndex, entry }] : [];
  });
  return aepKeys(nativeSha256, entries);
}

/** Finds a public key by its file, or by its id in the log, because the file may be lost. */
async function knownKey({ database }: Admin, use: Use, key: string): Promise<Uint8Array> {
  if (!keyIdSchema.safeParse(key).success) return readPublicKey(key);
  const known = (await entriesOf(await database(), use)).find(({ key_id }) => key_id === key);
  if (known === undefined) throw new OperatorError(`the log never activated key ${key}`);
  return fromBase64Url(known.public_key);
}

/** The raw public key of a PEM file with a public or private key, or of a key in a device or service. */
export async function readPublicKey(file: string): Promise<Uint8Array> {
  if (isKeyUri(file)) return (await openSigner(file)).publicKey;
  const pem = await readOperatorsFile(file);
  let jwk;
  try {
    jwk = createPublicKey(pem).export({ format: 'jwk' });
  } catch (cause) {
    throw new OperatorError(`${file} does not hold a PEM key`, { cause });
  }
  if (jwk.crv === 'Ed25519' && jwk.x !== undefined) return Buffer.from(jwk.x, 'base64url');
  throw new OperatorError(
    `${file} does not hold an Ed25519 key: create one with openssl genpkey -algorithm ed25519`,
  );
}
