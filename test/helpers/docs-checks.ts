import { execFile, spawnSync } from 'node:child_process';
import { promisify } from 'node:util';
import { beforeAll, describe, expect, it } from 'vitest';
import type { ProblemTable } from '#api/openapi/description';
import { send, type Reply } from './send.js';
import { readOpenApi, type ServedOpenApi } from './served-openapi.js';

const run = promisify(execFile);
export const hasCurl = spawnSync('curl', ['--version']).status === 0;

/** What is true of a good page of documentation, of whichever API. */
export function checkDocs(urlOf: () => string, problems: ProblemTable): void {
  let api: ServedOpenApi;
  let reply: Reply;
  let page: string;

  beforeAll(async () => {
    api = await readOpenApi(urlOf());
    reply = await readDocs(urlOf());
    page = reply.bytes.toString();
  });

  describe('the page', () => {
    it('may load its own style sheet and nothing else, and runs nothing', async () => {
      expect(reply.status).toBe(200);
      expect(reply.headers['content-type']).toBe('text/html; charset=utf-8');
      const policy = reply.headers['content-security-policy'];
      expect(policy).toContain("default-src 'none'; style-src 'self'");
      expect(policy).not.toMatch(/script-src|unsafe|https?:/);
      expect(page).not.toMatch(/<script|<iframe|<img|\sstyle=|\son[a-z]+=|javascript:/i);
      const style = await send(urlOf(), { method: 'GET', path: '/docs/style.css' });
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
      for (const code of Object.keys(problems)) expect(page).toContain(`<code>${code}</code>`);
    });
  });
}

export function readDocs(url: string): Promise<Reply> {
  return send(url, { method: 'GET', path: '/docs' });
}

const unescape = (text: string): string =>
  text
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&quot;', '"')
    .replaceAll('&#39;', "'")
    .replaceAll('&amp;', '&');

/** Pastes every call of a page into a shell, one after the other: the status and first line of each. */
export async function pasteAll(page: string, env: Record<string, string>): Promise<string[]> {
  const commands = [...page.matchAll(/<pre[^>]*><code>(curl [^]*?)<\/code><\/pre>/g)].map(
    ([, text = '']) => unescape(text),
  );
  // One after the other, as a reader would: what revokes a proof comes after what exports it.
  const outcomes: string[] = [];
  for (const command of commands) {
    const shown = command.replace('curl -sS', "curl -sS -o /dev/null -w '%{http_code}'");
    const { stdout } = await run('bash', ['-c', shown], {
      env: { PATH: process.env['PATH'] ?? '', ...env },
    });
    outcomes.push(`${stdout} ${command.split('\n')[0] ?? ''}`);
  }
  return outcomes;
}
