import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import postgres from 'postgres';
import { inject } from 'vitest';

const hasOpenssl = spawnSync('openssl', ['version']).status === 0;

/** CI skips nothing, so there they fail instead. */
export const skipsTls = !hasOpenssl && process.env['CI'] === undefined;

const SUBJECT = '/CN=localhost';

/** Has the run's Postgres take TLS too, with a certificate that it signed itself: whoever does not ask for TLS sees nothing of it. */
export async function serveTls(): Promise<void> {
  const { url } = inject('postgres');
  const sql = postgres(url, { max: 1, onnotice: () => undefined });
  try {
    // One test file after the other: the first of them does it for all.
    await sql`select pg_advisory_lock(hashtext('TLS for tests'))`;
    const [row] = await sql`select current_setting('ssl') as ssl`;
    if (row?.['ssl'] !== 'on') await turnOn(sql, url);
  } finally {
    await sql.end({ timeout: 1 });
  }
}

/** A key and a certificate that it signed itself, for these names (`DNS:…`, `IP:…`). */
export async function selfSigned(names: string): Promise<{ key: Buffer; cert: Buffer }> {
  const folder = await mkdtemp(join(tmpdir(), 'svc-tls-'));
  const [key, certificate] = [join(folder, 'key'), join(folder, 'certificate')];
  const kind = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-x509'];
  const subject = ['-subj', SUBJECT, '-addext', `subjectAltName=${names}`];
  try {
    execFileSync('openssl', ['req', ...kind, '-keyout', key, '-out', certificate, ...subject], {
      stdio: 'ignore',
    });
    return { key: await readFile(key), cert: await readFile(certificate) };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function turnOn(sql: postgres.Sql, url: string): Promise<void> {
  const { key, cert } = await selfSigned('DNS:localhost,IP:127.0.0.1');
  // Base64 has nothing in it that a shell or SQL would take for something else.
  for (const [name, content] of [
    ['server.key', key],
    ['server.crt', cert],
  ] as const) {
    const bytes = content.toString('base64');
    await sql.unsafe(
      `copy (select '${bytes}') to program 'umask 077; base64 -d > ${name}.new; mv ${name}.new ${name}'`,
    );
  }
  await sql.unsafe('alter system set ssl = on');
  await sql`select pg_reload_conf()`;
  const wanted = new URL(url);
  wanted.searchParams.set('sslmode', 'require');
  for (let n = 0; ; n += 1) {
    const over = postgres(wanted.toString(), { max: 1 });
    const [row] = await over`select ssl from pg_stat_ssl where pid = pg_backend_pid()`.catch(
      () => [],
    );
    await over.end({ timeout: 1 });
    if (row?.['ssl'] === true) return;
    if (n > 100) throw new Error('the test server does not take TLS');
    await sleep(50);
  }
}
