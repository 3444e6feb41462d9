import { execFile, spawnSync } from 'node:child_process';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { PROBLEMS } from '#api/engine/http/problem';
import { html } from '#api/engine/docs/html';
import { send, type Reply } from './helpers/engine.js';
import { established, openEngineWorld, type EngineWorld } from './helpers/engine-world.js';
import { readOpenApi, type ServedOpenApi } from './helpers/served-openapi.js';
import { SCENARIOS } from './helpers/operation-scenarios.js';
import { TENANT } from './helpers/registry.js';

const run = promisify(execFile);
const hasCurl = spawnSync('curl', ['--version']).status === 0;

let world: EngineWorld;
let api: ServedOpenApi;
let reply: Reply;
let page: string;

beforeAll(async () => {
  world = await openEngineWorld();
  api = await readOpenApi(world.engine.url);
  reply = await send(world.engine.url, { method: 'GET', path: '/docs' });
  page = reply.bytes.toString();
});
afterAll(() => world.close());

const unescape = (text: string): string =>
  text
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&quot;', '"')
    .replaceAll('&#39;', "'")
    .replaceAll('&amp;', '&');

describe('the page', () => {
  it('may load its own style sheet and nothing else, and runs nothing', async () => {
    expect(reply.status).toBe(200);
    expect(reply.headers['content-type']).toBe('text/html; charset=utf-8');
    const policy = reply.headers['content-security-policy'];
    expect(policy).toContain("default-src 'none'; style-src 'self'");
    expect(policy).not.toMatch(/script-src|unsafe|https?:/);
    expect(page).not.toMatch(/<script|<iframe|<img|\sstyle=|\son[a-z]+=|javascript:/i);
    const style = await send(world.engine.url, { method: 'GET', path: '/docs/style.css' });
    expect(style.headers['content-type']).toBe('text/css; charset=utf-8');
    expect(style.bytes.toString()).not.toMatch(/url\(|@import/);
  });

  it('leads only to places that are there, each of which is one', () => {
    const ids = [...page.matchAll(/\sid="([^"]+)"/g)].map(([, id]) => id);
    expect(new Set(ids).size).toBe(ids.length);
    const links = [...page.matchAll(/href="([^"]+)"/g)].map(([, href = '']) => href);
    const served = ['/docs/style.css', '/openapi.json', '/docs'];
    for (const href of links) {
      expect(href.startsWith('#') ? ids : served).toContain(href.replace(/^#/, ''));
    }
  });

  it('has every operation with every status, and every code', () => {
    for (const { id, path, operation } of api.operations) {
      const start = page.indexOf(`<section class="operation" id="${id}"`);
      expect(start, id).toBeGreaterThan(0);
      const section = page.slice(start, page.indexOf('</section>', start));
      expect(section.replaceAll('<wbr />', '')).toContain(`<code>${path}</code>`);
      for (const [status, response] of Object.entries(operation.responses)) {
        expect(section).toMatch(new RegExp(`<dt class="s.">${status}</dt>`));
        for (const code of response['x-codes'] ?? []) expect(section).toContain(code);
      }
    }
    for (const code of Object.keys(PROBLEMS)) expect(page).toContain(`<code>${code}</code>`);
  });

  it('escapes whatever is put into it', () => {
    expect(html`<p title="${'"><script>'}">${"<b>'&"}</p>`.text).toBe(
      '<p title="&quot;&gt;&lt;script&gt;">&lt;b&gt;&#39;&amp;</p>',
    );
  });
});

describe('an example on the page', () => {
  it.skipIf(!hasCurl)('works as it is pasted', async () => {
    const id = await established(world);
    const made = async (operation: string): Promise<Record<string, unknown>> =>
      (await world.engine.call(await SCENARIOS[operation]!.good(world))).json;
    const { package_id: packageId } = await made('createPackage');
    const { token_hash: tokenHash } = await made('createShareToken');
    const env = {
      PATH: process.env['PATH'] ?? '',
      SVC_URL: world.engine.url,
      SVC_API_KEY: world.key,
      SVC_TENANT_ID: TENANT,
      PROOF_ID: id,
      PACKAGE_ID: String(packageId),
      TOKEN_HASH: String(tokenHash),
    };
    const commands = [...page.matchAll(/<pre[^>]*><code>(curl [^]*?)<\/code><\/pre>/g)].map(
      ([, text = '']) => unescape(text),
    );
    expect(commands.length).toBeGreaterThanOrEqual(api.operations.length);
    // One after the other, as a reader would: what revokes a proof comes after what exports it.
    const outcomes: string[] = [];
    for (const command of commands) {
      const shown = command.replace('curl -sS', "curl -sS -o /dev/null -w '%{http_code}'");
      const { stdout } = await run('bash', ['-c', shown], { env });
      outcomes.push(`${stdout} ${command.split('\n')[0] ?? ''}`);
    }
    // A few name documents of somebody else's, and are refused for that and nothing else.
    const refused = outcomes.filter((one) => !one.startsWith('2'));
    expect(refused.filter((one) => !/^(404|422) /.test(one))).toEqual([]);
    expect(refused.length).toBeLessThanOrEqual(6);
    console.log(refused.join('\n'));
  });
});
