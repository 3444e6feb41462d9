import { createPublicKey } from 'node:crypto';
import { fromBase64Url, toBase64Url } from '#protocol/bytes';
import { parseEntry } from '#protocol/entries';
import { jwkThumbprint } from '#protocol/keys';
import { formatVkey } from '#protocol/note';
import type { LogEntry } from '#protocol/schemas/log-entry';
import { keyIdSchema } from '#protocol/schemas/primitives';
import type { AepKey } from '#protocol/snapshot/keys';
import { KeyStates } from '#protocol/state/log-keys';
import { keyStatusAt } from '#protocol/state/log-state';
import { nativeCrypto, nativeSha256, isKeyUri } from '#runtime/crypto/node';
import { openSigner } from '#runtime/crypto/signer';
import { OperatorError } from '#runtime/process/operator-error';
import { appendKeyChange, intactKeys, type KeyUse } from '#sql/lifecycle/signing-keys';
import { countProofs, keyEntries } from '#sql/log/keys';
import { treeSize, knownOrigins } from '#sql/log/log';
import type { Db } from '#sql/db/transaction';
import {
  confirmOption,
  readOperatorsFile,
  requireConfirmed,
  UsageError,
  wholeNumber,
  type AddCommand,
  type Admin,
  Outcome,
} from './command.js';

const EXAMPLE_FILE = '/etc/svc/aep.pem';
const EXAMPLE_KEY = 'kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k';

export function addSigningKeyCommands(add: AddCommand): void {
  add(
    'aep-key activate <key.pem>',
    'Activate an AEP key, or with --root a key that delegates to keys of workers, from the next log index on',
    EXAMPLE_FILE,
    async (admin, file: string, { root = false }: { root?: boolean }) =>
      changeKey(admin, 'activate', {
        use: root ? 'aep_root' : 'aep',
        publicKey: await readPublicKey(file),
      }),
  ).option('--root', 'activate a root: workers with AEP_ROOT_KEY_FILE create keys under it');
  add(
    'verifier-key activate <key.pem>',
    'Activate a verifier key for verdict entries from the next log index on',
    '/etc/svc/verifier.pem',
    async (admin, file: string) =>
      changeKey(admin, 'activate', { use: 'verifier', publicKey: await readPublicKey(file) }),
  );
  for (const [name, uses, retire] of [
    ['aep', AEP_USES, 'Retire an AEP key or a root; earlier signatures stay valid'],
    ['verifier', ['verifier'], 'Retire a verifier key; its earlier verdict entries stay valid'],
  ] as const) {
    // Allows unknown options, because one key id in 64 begins with a dash.
    add(
      `${name}-key retire <key.pem|key_id>`,
      retire,
      `/etc/svc/${name}.pem --confirm ${EXAMPLE_KEY}`,
      async (admin, key: string, { confirm }: { confirm: string }) =>
        changeKey(admin, 'retire', await knownKey(admin, uses, key), { confirm }),
    )
      .allowUnknownOption()
      .requiredOption(...confirmOption('key_id'));
  }
  add(
    'aep-key compromise <key.pem|key_id>',
    'Void every signature of a compromised key, and of the keys that it delegated, from a log index on',
    `${EXAMPLE_FILE} --from-index 48213 --confirm ${EXAMPLE_KEY}`,
    async (admin, key: string, options: { confirm: string; fromIndex: string }) => {
      const fromIndex = wholeNumber(options.fromIndex, 0, Number.MAX_SAFE_INTEGER);
      const known = await knownKey(admin, AEP_USES, key);
      return changeKey(admin, 'compromise', known, { ...options, fromIndex });
    },
  )
    .allowUnknownOption()
    .requiredOption(
      '--from-index <log index>',
      'the first log index at which signatures of the key are void',
    )
    .requiredOption(...confirmOption('key_id'));
  add(
    'aep-key list',
    'List the AEP keys and roots in the log, with the log positions for which each is valid',
    '',
    async ({ database }) => listKeys(await database(), AEP_USES),
  );
  add(
    'verifier-key list',
    'List the verifier keys in the log, with the log positions for which each is valid',
    '',
    async ({ database }) => listKeys(await database(), ['verifier']),
  );
  add(
    'vkey <key_name> <key.pem>',
    'Print the C2SP vkey that readers pin for a log key; needs no database',
    'log.example.org/2026 /etc/svc/log-2.pem',
    async (_admin, name: string, file: string) => {
      if (!/^[^\s+]{1,200}$/.test(name)) {
        throw new UsageError('a key name must not contain spaces or plus signs');
      }
      const vkey = formatVkey(nativeSha256, name, await readPublicKey(file));
      return new Outcome({ vkey }, { text: `${vkey}\n` });
    },
  );
}

interface Key {
  use: KeyUse;
  publicKey: Uint8Array;
}

async function changeKey(
  { act }: Admin,
  change: 'activate' | 'retire' | 'compromise',
  { use, publicKey }: Key,
  { confirm, fromIndex }: { confirm?: string; fromIndex?: number } = {},
) {
  const keyId = jwkThumbprint(nativeSha256, publicKey);
  if (change !== 'activate') requireConfirmed(confirm, keyId);
  const leafIndex = await act(async (tx) => {
    const at = await appendKeyChange(tx, {
      use,
      keyId,
      publicKey: toBase64Url(publicKey),
      change,
      ...(fromIndex === undefined ? {} : { fromIndex }),
    });
    const signers = use === 'verifier' ? 'verifier' : 'aep';
    // Counts the active keys in the transaction of the retirement, so that no other key is retired concurrently.
    if (change === 'retire' && (await activeKeys(tx, signers)).length === 0) {
      throw new OperatorError(`this is the last active key, and ${WITHOUT_KEY[signers]}`);
    }
    return at;
  });
  return { key_id: keyId, change, leaf_index: leafIndex };
}

const AEP_USES: readonly KeyUse[] = ['aep', 'aep_root'];

const WITHOUT_KEY = {
  aep: 'admissions cannot be signed without an active key: activate its successor first; to stop admissions, use lane lock',
  verifier: 'the verifier appends no verdict without an active key: activate its successor first',
};

/** Ids of the keys that are active at the end of the log, including roots, but not the keys under a root. */
export async function activeKeys(sql: Db, signers: keyof typeof WITHOUT_KEY): Promise<string[]> {
  const entries = entriesFor(await intactKeys(sql), signers === 'aep' ? AEP_USES : [signers]);
  const ended = entries.flatMap((entry) => (entry.change === 'activate' ? [] : [entry.key_id]));
  return [...new Set(entries.map((entry) => entry.key_id))].filter((id) => !ended.includes(id));
}

const entriesFor = (keys: readonly { entry: LogEntry }[], uses: readonly KeyUse[]) =>
  keys.flatMap(({ entry }) =>
    entry.type === 'key' && 'key_id' in entry && uses.includes(entry.use) ? [entry] : [],
  );

async function keysOf(sql: Db, uses: readonly KeyUse[]) {
  const entries = (await keyEntries(sql)).map(({ leafIndex, body }) => {
    return { leafIndex, entry: parseEntry(body) };
  });
  const origins = await knownOrigins(sql);
  const states = new KeyStates({ ...nativeCrypto, origins }, entries);
  const ids = entriesFor(entries, uses).map(({ key_id }) => key_id);
  await countProofs(sql, states, ids);
  return [...new Set(ids)].flatMap((id) => states.keyOf(id) ?? []);
}

async function listKeys(sql: Db, uses: readonly KeyUse[]) {
  const [keys, log_size] = [await keysOf(sql, uses), await treeSize(sql)];
  return keys.map((key) => {
    const { id: key_id, compromisedFrom: compromised_from, retiredFrom: retired_at, use } = key;
    const state = compromised_from !== null ? 'compromised' : keyStatusAt(key, log_size);
    const range = { activated_at: key.index, retired_at, compromised_from, log_size };
    return { key_id, use, root_key_id: key.root, state, ...range };
  });
}

/**
 * The AEP keys and roots that readers pin, in the form of `GET /api/public/keys`. Does not list delegated
 * keys, which their roots cover.
 */
export async function loggedKeys(sql: Db): Promise<AepKey[]> {
  const keys = (await keysOf(sql, AEP_USES)).filter(({ root }) => root === null);
  return keys.map(({ compromisedFrom, id, index, publicKey, retiredFrom }) => ({
    kty: 'OKP',
    crv: 'Ed25519',
    x: publicKey!,
    kid: id,
    use: 'sig',
    alg: 'EdDSA',
    activated_at: index,
    retired_at: retiredFrom,
    compromised_from: compromisedFrom,
  }));
}

/** Finds a public key by its file, or by its id in the log, because the file may be lost. */
async function knownKey({ database }: Admin, uses: readonly KeyUse[], key: string): Promise<Key> {
  const isId = keyIdSchema.safeParse(key).success;
  const given = isId ? null : await readPublicKey(key);
  const keyId = given === null ? key : jwkThumbprint(nativeSha256, given);
  const logged = entriesFor(await intactKeys(await database(), [keyId]), uses);
  const known = logged.find(({ key_id }) => key_id === keyId);
  if (known === undefined) throw new OperatorError(`the log never activated key ${keyId}`);
  return { use: known.use, publicKey: fromBase64Url(known.public_key) };
}

/** The raw public key of a PEM file with a public or private key, or of a key in an HSM or a KMS. */
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
