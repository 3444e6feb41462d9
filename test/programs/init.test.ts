import { generateKeyPairSync } from 'node:crypto';
import fs from 'node:fs';
import { readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { basename, join } from 'node:path';
import { beforeEach, describe, expect, inject, it, onTestFinished } from 'vitest';
import { MIGRATIONS } from '#programs/database';
import { PROGRAM_ROLES } from '#programs/migrate-database';
import { createSigningKey, loadSigningKey } from '#runtime/crypto/node';
import { connect, withPool } from '#runtime/postgres/connect';
import { migrate } from '#sql/schema/migrate';
import { adminWith, done } from '../fixtures/admin.js';
import { emptyDatabase } from '../fixtures/empty-database.js';
import { TcpProxy } from '../fixtures/tcp-proxy.js';
import { testFolder } from '../fixtures/test-folder.js';
import { firstHostDown } from '../fixtures/two-hosts.js';

const ORIGIN = 'log.example.org/2026';

describe('admin init', () => {
  let directory: string;
  const init = (...options: string[]) =>
    done(adminWith({})('init', directory, '--log-origin', ORIGIN, ...options));
  const make = async () => (await init('--only', 'files'))['created'];
  const file = (name: string): string => join(directory, name);
  const content = async (): Promise<Record<string, string>> => {
    const names = await readdir(directory);
    const texts = names.map(async (name) => [name, await readFile(file(name), 'utf8')]);
    return Object.fromEntries(await Promise.all(texts)) as Record<string, string>;
  };
  beforeEach(async () => {
    directory = await testFolder();
  });

  it('creates all files once, and in a repeated run only files that were removed', async () => {
    expect(await make()).toContain('log-key.pem');
    const first = await content();
    expect(await make()).toEqual([]);
    expect(await content()).toEqual(first);
    await rm(file('worker-database-url'));
    expect(await make()).toEqual(['worker-database-url']);
    const { 'worker-database-url': changed, ...rest } = await content();
    const { 'worker-database-url': before, ...others } = first;
    expect(changed).not.toBe(before);
    expect(rest).toEqual(others);
  });

  it('refuses the folder of another log', async () => {
    await make();
    const first = await content();
    const reply = await adminWith({})(
      'init',
      directory,
      '--only',
      'files',
      '--log-origin',
      'b.org',
    );
    expect(reply.err).toContain(`repeat the command with --log-origin ${ORIGIN}`);
    expect(reply.code).toBe(1);
    expect(await content()).toEqual(first);
  });

  it('writes all hosts of --database into the URLs', async () => {
    await init('--only', 'files', '--database', 'db1:5432,db2:5433/svc');
    const { 'engine-database-url': url } = await content();
    expect(url).toMatch(/^postgres:\/\/svc_engine:[\w-]+@db1:5432,db2:5433\/svc\n$/);
  });

  it('creates no file for an address that cannot be in a URL', async () => {
    await expect(init('--queue', 'valkey:65536')).rejects.toThrow('--queue must be host:port');
    for (const hosts of ['db:65536', 'db:5432,db2:65536', 'db:5432,', 'db:5432,db2'])
      await expect(init('--database', `${hosts}/svc`)).rejects.toThrow('--database must be');
    expect(await readdir(directory)).toEqual([]);
  });

  it('makes only public files readable by other users', async () => {
    await make();
    for (const name of await readdir(directory)) {
      const { mode } = await stat(file(name));
      const isPublic = /vkey$|public-key|^pins/.test(name);
      expect([name, (mode & 0o007) !== 0]).toEqual([name, isPublic]);
      expect(mode & 0o222).toBe(isPublic ? 0 : mode & 0o200);
    }
    expect(loadSigningKey(file('aep-key.pem')).publicKey).toHaveLength(32);
  });

  it('gives public files their mode before their name, so a kill leaves no unreadable file', async () => {
    const modes: [string, number][] = [];
    const { renameSync } = fs;
    fs.renameSync = (from, to) => {
      modes.push([basename(String(to)), fs.statSync(from).mode & 0o777]);
      renameSync(from, to);
    };
    syncBuiltinESMExports();
    onTestFinished(() => {
      fs.renameSync = renameSync;
      syncBuiltinESMExports();
    });
    await make();
    expect(modes).toContainEqual(['pins.json', 0o444]);
  });

  it("makes the program's user the owner of a key file that root created", async () => {
    createSigningKey(file('log-key.pem'));
    expect(await make()).not.toContain('log-key.pem');
    const { mode, uid } = await stat(file('log-key.pem'));
    expect(mode & 0o777).toBe(0o400);
    expect(uid).toBe(process.getuid!() === 0 ? 10_004 : process.getuid!());
  });

  it('rejects a key file of the wrong key type', async () => {
    const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const pem = privateKey.export({ format: 'pem', type: 'pkcs8' });
    for (const name of ['aep', 'verifier', 'witness', 'log']) {
      await rm(file(`${name}-key.pem`), { force: true });
      await writeFile(file(`${name}-key.pem`), pem, { mode: 0o600 });
      await expect(make()).rejects.toThrow(`${name}-key.pem holds a key of type ec, not Ed25519`);
      await rm(file(`${name}-key.pem`));
    }
  });

  it('leaves the group no access to an owner URL file that the operator created with mode 0600', async () => {
    const owner = file('owner-database-url');
    await writeFile(owner, 'postgres://svc_owner:of-the-server@db:5432/svc\n', { mode: 0o600 });
    await make();
    await make();
    expect((await stat(owner)).mode & 0o777).toBe(0o400);
  });

  it('creates URLs with the hosts and the sslmode of the owner URL', async () => {
    const rest = '@db1:5433,db2/registry?sslmode=verify-full\n';
    await writeFile(file('owner-database-url'), `postgres://svc_owner:secret${rest}`, {
      mode: 0o600,
    });
    await make();
    const urlOf = async () => (await content())['engine-database-url'];
    expect(await urlOf()).toMatch(/^postgres:\/\/svc_engine:[\w-]{43}@/);
    expect(await urlOf()).toContain(rest);
    await rm(file('engine-database-url'));
    await init('--only', 'files', '--database', 'pooler:6432/svc');
    expect(await urlOf()).toMatch(/@pooler:6432\/svc\n$/);
    await writeFile(file('owner-database-url'), 'postgres:secret');
    await rm(file('engine-database-url'));
    await expect(make()).rejects.toThrow('does not hold a URL like');
    expect(await content()).not.toHaveProperty('engine-database-url');
  });

  it('rejects a database of another encoding than UTF-8', async () => {
    const url = await emptyDatabase(`encoding 'SQL_ASCII' locale 'C' template template0`);
    const migrating = withPool(url, { application: 'test' }, (sql) => migrate(sql, MIGRATIONS));
    await expect(migrating).rejects.toThrow('the database has the encoding SQL_ASCII');
  });

  it('rejects a server before PostgreSQL 15', async () => {
    const url = await emptyDatabase();
    await withPool(url, { application: 'test' }, (sql) =>
      sql.unsafe(`
        create schema old;
        create function old.current_setting(name text) returns text language sql as
          $$ select case name when 'server_version_num' then '140023' else pg_catalog.current_setting(name) end $$;
        do $$ begin
          execute format('alter database %I set search_path = old, pg_catalog', current_database());
        end $$`),
    );
    const migrating = withPool(url, { application: 'test' }, (sql) => migrate(sql, MIGRATIONS));
    await expect(migrating).rejects.toThrow(/runs PostgreSQL .*: use PostgreSQL 15 or later/);
  });

  it('names the cause when the database is read-only', async () => {
    const url = await emptyDatabase();
    await withPool(url, { application: 'test' }, (sql) =>
      sql.unsafe(`do $$ begin execute format(
        'alter database %I set default_transaction_read_only = on', current_database()); end $$`),
    );
    await writeFile(file('owner-database-url'), url);
    await expect(init('--only', 'database')).rejects.toThrow(
      'default_transaction_read_only is on. Free disk space',
    );
  });

  it('makes an empty database ready, and changes nothing when it is repeated', async () => {
    const { passwords } = inject('postgres');
    const url = await emptyDatabase();
    const urlOf = (role: string): string =>
      Object.assign(new URL(url), { username: role, password: passwords[role]! }).href;
    // Other tests use the same roles of the server, so `init` must keep the roles' passwords.
    let sent = '';
    const proxy = await TcpProxy.open(url, 'other', (bytes) => (sent += bytes.toString('latin1')));
    onTestFinished(() => proxy.close());
    const own = proxy.urlFor(url);
    const owner = firstHostDown(own);
    await writeFile(file('owner-database-url'), owner);
    // `init` refuses to set new passwords, with which programs of other databases could not log in.
    await expect(init()).rejects.toThrow('would lock out the installation in the database');
    for (const role of PROGRAM_ROLES.filter((one) => passwords[one] !== undefined)) {
      const urlFile = file(`${role.replace('svc_', '')}-database-url`);
      await rm(urlFile, { force: true });
      await writeFile(urlFile, firstHostDown(urlOf(role)));
    }
    const first = await init();
    expect(first['migrations']).not.toEqual([]);
    expect(first['roles']).toContain('svc_engine');
    // No statement contains a password, because PostgreSQL may log statements.
    expect(sent).toContain('alter role svc_engine login');
    expect(sent).not.toContain(passwords['svc_engine']);
    const admin = adminWith({ DATABASE_URL: urlOf('svc_admin') });
    const vkey = (await readFile(file('log.vkey'), 'utf8')).trim();
    expect((await admin('log-key', 'list')).json).toMatchObject([{ vkey, state: 'active' }]);
    const pins = await done(admin('pins'));
    expect(pins).toMatchObject({ aep: [{ activated_at: 0 }], log: { origin: ORIGIN, vkey } });
    const lines = await admin('policy', 'list');
    expect(await init()).toMatchObject({
      created: [],
      migrations: [],
      log_vkey: vkey,
      inactive: [],
    });
    expect((await admin('policy', 'list')).json).toEqual(lines.json);
    expect(await done(admin('pins'))).toEqual(pins);
    // `init` creates a key in place of a lost one, which the log must not activate.
    for (const name of ['aep', 'log']) await rm(file(`${name}-key.pem`));
    expect(await init()).toMatchObject({
      created: ['aep-key.pem', 'log-key.pem'],
      inactive: ['aep-public-key.pem', 'log.vkey'],
    });
    expect(await done(admin('pins'))).toEqual(pins);
    // After an upgrade is undone, the earlier version's `init` runs on the schema of the later version.
    const later = connect(own, { application: 'test', max: 1 });
    await later.unsafe(`create table svc.later (a integer); grant select on svc.later to svc_admin;
      insert into public.svc_migration (version, name, digest) values (9999, '9999_later.sql', '')`);
    await later.end();
    expect(await init('--only', 'database')).toMatchObject({ migrations: [] });

    for (let round = 0; round < 3; round += 1) {
      const all = await Promise.all([1, 2, 3].map(() => init('--only', 'database')));
      expect(all).toMatchObject([{ migrations: [] }, { migrations: [] }, { migrations: [] }]);
    }

    const wrong = Object.assign(new URL(urlOf('svc_admin')), { password: 'wrong' }).href;
    await writeFile(file('owner-database-url'), wrong);
    await expect(init('--only', 'database')).rejects.toThrow('rejected the password in its URL (');
    await writeFile(file('owner-database-url'), owner);
    await writeFile(file('engine-database-url'), urlOf('svc_worker'));
    await expect(init('--only', 'database')).rejects.toThrow('a URL of svc_worker, not of svc_eng');
  });
});
