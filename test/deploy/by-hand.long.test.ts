import { readdirSync, readFileSync } from 'node:fs';
import { chmod, mkdtemp } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import postgres from 'postgres';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { skipsByHand, withoutThem } from '../fixtures/compose/debian.js';
import { readCompose } from '../fixtures/compose/file.js';
import { makeImage } from '../fixtures/compose/image.js';
import { canRead } from '../fixtures/compose/images.js';
import { isRoot } from '../fixtures/compose/process.js';
import { composeUp, type Up } from '../fixtures/compose/up.js';
import { alertRules, dashboardQueries, metricsIn } from '../fixtures/compose/monitoring.js';
import { makeWorld, type World } from '../fixtures/compose/world.js';

const PROGRAMS = ['engine', 'worker', 'verifier', 'publisher', 'facade'] as const;

interface QueryAnswer {
  status: string;
  error?: string;
  data: { result: { value: [number, string] }[] };
}

interface RulesAnswer {
  data: { groups: { rules: { name: string; health: string }[] }[] };
}

interface Receipt {
  registry_proof_id: string;
  status: string;
}

/** Resolves when the server closes the connection. */
function beginRequest(port: number): Promise<void> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => socket.write('GET / HTTP/1.1\r\nHost: a\r\n'));
    socket.once('close', () => resolve());
    // nginx resets the connection.
    socket.once('error', () => undefined);
    socket.resume();
  });
}

/**
 * nginx logs this line when a cached file is replaced while nginx reads the file. nginx then requests
 * the response from upstream.
 */
const STALE_CACHE = / \[crit\] .*: \*\d+ cache file "[^"]+" has too long header, client: /;

// The commands, environments, users and secrets of docker-compose.yml, run as processes on the
// loopback interface with Debian's programs instead of the images.
describe.skipIf(skipsByHand)(`deployment without Docker${withoutThem}`, () => {
  let directory: string;
  let world: World;
  let up: Up;
  let apiKey: string;
  /** A client that never completes its headers. */
  let slow: Promise<void>;
  const url = (service: string, port: string, replica = 1): string =>
    `http://127.0.0.1:${world.port(service, replica, port)}`;

  const execute = (intent: string): Promise<Response> =>
    fetch(`${url('balancer', '8080')}/v1/intents/execute`, {
      method: 'POST',
      headers: {
        'X-Svc-Api-Key': apiKey,
        'X-Svc-Tenant-Id': 'acme',
        'svc-api-version': 'v1',
        'Content-Type': 'application/json',
      },
      body: JSON.stringify({
        schema_version: 'svc.runtime.intent_execute.request/1.0',
        intent_id: intent,
        tenant_id: 'acme',
        action: 'SEND_REPORT',
      }),
    });
  const lookUp = (id: string): Promise<Response> =>
    fetch(`${url('nginx', '8081')}/api/public/verify/proof/${id}`);

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'svc-by-hand-'));
    // Other users may enter the directory; each file has its own mode.
    await chmod(directory, 0o755);
    const compose = readCompose({
      LOG_ORIGIN: 'log.example.org/2026',
      PUBLIC_URL: 'https://registry.example.org',
      POSTGRES_SHARED_BUFFERS: '64MB',
      SHUTDOWN_DELAY: '0',
    });
    world = await makeWorld(compose, directory, makeImage(directory));
    up = await composeUp(world, ['board', 'monitor', 'prometheus', 'node-exporter']);
    slow = beginRequest(world.port('nginx', 1, '8081'));
  }, 240_000);
  afterAll(async () => {
    await up?.down();
  });

  it('starts with the documented commands', async () => {
    await up.run('admin', 'tenant', 'create', 'acme', 'sandbox');
    await up.run('admin', 'tenant', 'allow', 'acme');
    await up.run('admin', 'lane', 'open', 'sandbox');
    const issued = await up.run('admin', 'key', 'issue', 'acme', '--review', 'REV-2026-014');
    apiKey = (JSON.parse(issued) as { api_key: string }).api_key;
    expect(apiKey).toMatch(/^svc_sk_/);
  });

  it('admits requests through the engine and serves lookups through nginx and its cache', async () => {
    const answer = await execute('first-look');
    expect(answer.status).toBe(200);
    const receipt = (await answer.json()) as Receipt;
    expect(receipt.status).toBe('ADMITTED');
    await expect.poll(async () => (await lookUp(receipt.registry_proof_id)).status).toBe(200);
    const seen = new Set<string | null>();
    for (let n = 0; n < 5; n += 1) {
      const lookup = await lookUp(receipt.registry_proof_id);
      seen.add(lookup.headers.get('x-svc-cache'));
      expect(await lookup.json()).toMatchObject({ verification: { verification_status: 'VALID' } });
    }
    expect([...seen]).toContain('HIT');
  });

  it.runIf(isRoot)("makes each program's secrets readable only by that program", () => {
    const secrets = join(directory, 'bound', 'deploy', 'secrets');
    const names = readdirSync(secrets).filter((name) => !/vkey$|public-key|^pins/.test(name));
    expect(names.length).toBeGreaterThan(10);
    for (const name of [...PROGRAMS, 'admin'] as const) {
      const readable = names.filter((file) => canRead(world, name, join(secrets, file)));
      expect([name, readable.sort()]).toEqual([
        name,
        (world.compose.services[name]!.secrets ?? []).filter((one) => names.includes(one)).sort(),
      ]);
    }
  });

  it('connects each program as its own database role, never as the owner or a superuser', async () => {
    const password = readFileSync(
      join(directory, 'bound', 'deploy', 'secrets', 'postgres-password'),
      'utf8',
    ).trim();
    const port = world.port('postgres', 1, '5432');
    const sql = postgres({ host: '127.0.0.1', port, user: 'postgres', password, database: 'svc' });
    const rows = await sql<{ usename: string; application_name: string }[]>`
      select distinct usename, application_name from pg_stat_activity
      where datname = 'svc' and backend_type = 'client backend' and pid <> pg_backend_pid()`;
    const [owner] = await sql<{ rolsuper: boolean }[]>`
      select rolsuper from pg_roles where rolname = 'svc_owner'`;
    const [database] = await sql`select datcollate from pg_database where datname = 'svc'`;
    await sql.end();
    const roles = new Set(rows.map(({ usename }) => usename));
    expect([...roles].sort()).toEqual([
      'svc_engine',
      'svc_publisher',
      'svc_verifier',
      'svc_worker',
    ]);
    expect(rows.length).toBeGreaterThanOrEqual(roles.size);
    expect(owner?.rolsuper).toBe(false);
    // The image creates other databases in another locale.
    expect(database).toEqual({ datcollate: 'C' });
  });

  it("rejects requests of an address over its rate limit with a 429 in the API's error format", async () => {
    const answers = await Promise.all(
      Array.from({ length: 40 }, async () => {
        const statuses = [];
        for (let n = 0; n < 10; n += 1) {
          const answer = await lookUp('0'.repeat(32));
          statuses.push({ answer, body: await answer.text() });
        }
        return statuses;
      }),
    );
    const refused = answers.flat().filter(({ answer }) => answer.status === 429);
    expect(refused.length).toBeGreaterThan(0);
    expect(refused.length).toBeLessThan(answers.flat().length);
    const [{ answer, body }] = refused as [(typeof refused)[number]];
    expect(answer.headers.get('retry-after')).toBe('1');
    expect(answer.headers.get('content-type')).toBe('application/problem+json');
    expect(answer.headers.get('cache-control')).toBe('no-store');
    expect(JSON.parse(body)).toMatchObject({ status: 429, code: 'rate_limited' });
  });

  it('logs no errors and no request paths, which may contain share tokens', () => {
    const own = join(directory, 'tmpfs', 'nginx-1', 'tmp');
    const log = readFileSync(join(own, 'access.log'), 'utf8');
    expect(log).toMatch(/ GET 429 /);
    const faults = readFileSync(join(own, 'faults.log'), 'utf8').split('\n');
    expect(faults.filter((line) => line !== '' && !STALE_CACHE.test(line))).toEqual([]);
    expect(/api\/public/.test(log + up.of('nginx')[0]!.output.join(''))).toBe(false);
  });

  it('sends the requests of a killed engine to another engine', async () => {
    const [engine] = up.of('engine');
    const answering = Promise.all(Array.from({ length: 60 }, (_, at) => execute(`killed-${at}`)));
    await new Promise((resolve) => setTimeout(resolve, 20));
    engine!.child.kill('SIGKILL');
    await engine!.ended;
    const answers = [...(await answering), await execute('after-the-kill')];
    const bodies = await Promise.all(answers.map((answer) => answer.json() as Promise<Receipt>));
    expect(bodies.filter((_, at) => answers[at]?.status !== 200)).toEqual([]);
    expect(new Set(bodies.map((one) => one.registry_proof_id)).size).toBe(answers.length);
  });

  it('provides data for every dashboard panel and every alert expression', async () => {
    const api = `${url('prometheus', '9090')}/api/v1`;
    const ask = async (query: string): Promise<number> => {
      const answer = await fetch(`${api}/query?${new URLSearchParams({ query }).toString()}`);
      const { status, data, error } = (await answer.json()) as QueryAnswer;
      if (status !== 'success') throw new Error(`${query}: ${error}`);
      return data.result.filter(({ value }) => !Number.isNaN(Number(value[1]))).length;
    };
    // Lookup durations are sampled, and a rate needs two scrapes with different values.
    const lookUpOften = async (replica: number): Promise<void> => {
      for (let n = 0; n < 130; n += 1) {
        const path = `/api/public/verify/proof/${'0'.repeat(32)}`;
        await (await fetch(url('facade', '8081', replica) + path)).arrayBuffer();
      }
    };
    const empty = async (): Promise<string[]> => {
      await Promise.all([lookUpOften(1), lookUpOften(2), execute(`again-${Date.now()}`)]);
      const found = [];
      for (const { title, expr } of dashboardQueries()) {
        const query = expr.replaceAll('$__rate_interval', '1m').replaceAll('$installation', '.*');
        if ((await ask(query)) === 0) found.push(`${title}: ${expr}`);
      }
      return found;
    };
    await expect.poll(empty, { interval: 1_000 }).toEqual([]);
    for (const metric of new Set(alertRules().flatMap(({ expr }) => metricsIn(expr)))) {
      // The profile `witness` is not part of this deployment.
      if (metric === 'svc_witness_requests_total') continue;
      expect([metric, (await ask(`count(${metric})`)) > 0]).toEqual([metric, true]);
    }
    const rules = (await (await fetch(`${api}/rules`)).json()) as RulesAnswer;
    const loaded = rules.data.groups.flatMap((group) => group.rules);
    expect(loaded.map(({ name, health }) => [name, health])).toEqual(
      alertRules().map(({ alert }) => [alert, 'ok']),
    );
  });

  it('passes an external fsck', async () => {
    const report = JSON.parse(await up.run('fsck', '--json')) as {
      findings: { grave: boolean }[];
    };
    expect(report.findings.filter(({ grave }) => grave)).toEqual([]);
  });

  it('disconnects clients that never complete a request', async () => {
    await slow;
  });

  it('answers 503 while no public API server runs', async () => {
    for (const one of up.of('facade')) one.child.kill('SIGTERM');
    await Promise.all(up.of('facade').map(({ ended }) => ended));
    const answer = await lookUp('1'.repeat(32));
    expect(answer.status).toBe(503);
    expect(answer.headers.get('retry-after')).toBe('2');
    expect(await answer.json()).toMatchObject({ code: 'unavailable' });
  });

  it('prints no secrets, and every program that still runs exits with code 0 when it is stopped', async () => {
    const written = up.running.flatMap(({ output }) => output).join('');
    const secrets = join(directory, 'bound', 'deploy', 'secrets');
    for (const name of readdirSync(secrets).filter((file) => /url|password/.test(file))) {
      const secret = readFileSync(join(secrets, name), 'utf8').trim();
      expect(written.includes(/:([^:@]+)@/.exec(secret)?.[1] ?? secret)).toBe(false);
    }
    expect(written).not.toContain(apiKey);
    const codes = await up.down();
    const failed = up.running.filter(
      // The signal kills the exporter, and a test above killed the engine.
      ({ service }) => codes[service] !== 0 && !['node-exporter-1', 'engine-1'].includes(service),
    );
    expect(failed.map(({ service, output }) => [service, output.join('')])).toEqual([]);
    expect(Object.keys(codes)).toHaveLength(up.running.length);
  });
});
