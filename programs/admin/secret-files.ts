import { createPublicKey, randomBytes } from 'node:crypto';
import { chmodSync, chownSync, existsSync, mkdirSync, statSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { formatVkey, parseVkey } from '#protocol/note';
import { KEYS_SCHEMA } from '#protocol/snapshot/keys';
import { createSigningKey, loadSigningKey, nativeSha256 } from '#runtime/crypto/node';
import { withLogin } from '#runtime/postgres/hosts';
import { createPrivateFile, writePublicFile } from '#runtime/process/files';
import { OperatorError } from '#runtime/process/operator-error';
import { pinning } from '../trust.js';

const PROGRAMS = ['engine', 'worker', 'verifier', 'publisher', 'admin', 'fsck'] as const;

const password = (): string => randomBytes(32).toString('base64url');

/**
 * Creates every missing secret of a deployment, readable only by the programs that need the secret.
 * Keeps existing files, and returns the names of the new files.
 *
 * @throws OperatorError if the folder has the keys of a log with another origin
 */
export async function makeSecretFiles(
  directory: string,
  { logOrigin, databaseUrl, queue }: { logOrigin: string; databaseUrl: string; queue: string },
): Promise<string[]> {
  // Mode 711: the user that starts containers checks that the files exist, but must not list them.
  mkdirSync(directory, { recursive: true, mode: 0o711 });
  await requireLog(directory, logOrigin);
  const made: string[] = [];

  /** Creates a missing file, and gives it to the program `owner`. `shared` can read it through the file's group. */
  const create = (
    name: string,
    make: (file: string) => unknown,
    owner: Owner,
    shared?: Owner,
  ): string => {
    const file = join(directory, name);
    if (!existsSync(file)) {
      make(file);
      made.push(name);
    }
    const mode = shared === undefined ? 0o400 : 0o440;
    const [uid, gid] = [USERS[owner], USERS[shared ?? owner]];
    const now = statSync(file);
    // Runs before chown: afterwards, chmod would need more than CAP_CHOWN.
    if ((now.mode & 0o777) !== mode) chmodSync(file, mode);
    if (process.getuid?.() === 0 && (now.uid !== uid || now.gid !== gid)) {
      chownSync(file, uid, gid);
    }
    return file;
  };
  const secret = (name: string, content: () => string, owner: Owner, shared?: Owner): string =>
    create(name, (file) => createPrivateFile(file, `${content()}\n`), owner, shared);
  /** Creates a missing key file, and loads the key. Throws for an operator's own file that holds no Ed25519 key. */
  const signingKey = (name: string, owner: Owner) =>
    loadSigningKey(create(`${name}-key.pem`, createSigningKey, owner));
  const publish = (name: string, content: string): void => {
    writePublicFile(join(directory, name), `${content.trim()}\n`);
  };

  secret('postgres-password', password, 'postgres');
  // PostgreSQL's container reads this URL through the file's group. A private file of the operator gets no
  // group access, because on a host another program may have this group id.
  const ownerUrl = join(directory, 'owner-database-url');
  const isByHand = existsSync(ownerUrl) && (statSync(ownerUrl).mode & 0o077) === 0;
  secret(
    'owner-database-url',
    () => withLogin(databaseUrl, 'svc_owner', password()),
    'migrate',
    isByHand ? undefined : 'postgres',
  );
  for (const program of PROGRAMS) {
    const url = (): string => withLogin(databaseUrl, `svc_${program}`, password());
    secret(`${program}-database-url`, url, program, 'migrate');
  }

  const redis = secret('redis-url', () => `redis://:${password()}@${queue}`, 'engine', 'worker');
  const queueUrl = new URL((await readFile(redis, 'utf8')).trim());
  secret('board-redis-url', () => queueUrl.href, 'board');
  secret('board-key', password, 'board');
  // The server's configuration includes this file, so that no password is on a command line.
  secret('valkey.conf', () => `requirepass ${queueUrl.password}`, 'valkey');
  secret('grafana-password', password, 'grafana');

  for (const [key, owner] of Object.entries({ aep: 'worker', verifier: 'verifier' } as const)) {
    signingKey(key, owner);
    const publicKey = createPublicKey(await readFile(join(directory, `${key}-key.pem`), 'utf8'));
    publish(`${key}-public-key.pem`, publicKey.export({ format: 'pem', type: 'spki' }).toString());
  }
  signingKey('witness', 'witness');
  const vkey = formatVkey(nativeSha256, logOrigin, signingKey('log', 'publisher').publicKey);
  publish('log.vkey', vkey);
  if (!existsSync(join(directory, 'pins.json'))) {
    // `admin pins` adds the AEP keys, once the log names them.
    const pins = {
      schema_version: KEYS_SCHEMA,
      aep: [],
      log: { origin: logOrigin, vkey, retired: [] },
    };
    publish('pins.json', JSON.stringify(pins));
    made.push('pins.json');
  }
  return made;
}

/** Throws if the folder has the keys of a log with another origin: the new pins would contradict these keys. */
async function requireLog(directory: string, logOrigin: string): Promise<void> {
  const file = join(directory, 'log.vkey');
  if (!existsSync(file)) return;
  const text = (await readFile(file, 'utf8')).trim();
  const { name } = pinning(file, () => parseVkey(text, nativeSha256));
  if (name === logOrigin) return;
  throw new OperatorError(
    `${directory} has the keys of the log ${name}: repeat the command with --log-origin ${name}, or create another log in another folder`,
  );
}

/**
 * The Unix users of a container deployment, one per program, so that a compromised program cannot
 * read the secrets of another program on a shared volume. `docker-compose.yml` has the same numbers.
 */
export const USERS = {
  migrate: 10_000,
  engine: 10_001,
  worker: 10_002,
  verifier: 10_003,
  publisher: 10_004,
  facade: 10_005,
  admin: 10_006,
  fsck: 10_007,
  board: 10_008,
  witness: 10_010,
  // User ids in the official images.
  postgres: 999,
  valkey: 999,
  grafana: 472,
} as const;

export type Owner = keyof typeof USERS;
