import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import type { RequestListener } from 'node:http';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { newApiKey, parseApiKey } from '#runtime/crypto/api-key';
import { packageRoot } from '#runtime/process/files';
import { serveLocally, type LocalServer } from '../fixtures/local-server.js';
import { openFolder, svc, type Folder } from '../fixtures/svc.js';

/** Key id of all examples in documents and tests; their secrets are 0, 1, 2, …. */
const EXAMPLE_ID = 'abcdefghij23';
const EXAMPLE_IDS = [EXAMPLE_ID, 'hqbkacmaciaa'];
const newKey = (): string => newApiKey().text;

/** The documented patterns, as a scanner runs them. */
async function patterns(): Promise<Record<string, RegExp>> {
  const [toml, json] = await Promise.all(
    ['gitleaks.toml', 'github-secret-pattern.json'].map((name) =>
      readFile(join(packageRoot, 'examples', name), 'utf8'),
    ),
  );
  const github = JSON.parse(json ?? '') as Record<string, string>;
  const anchored = (text = ''): string => text.replace('\\A', '^').replace('\\z', '$');
  return {
    gitleaks: new RegExp(/regex = '''(.*)'''/.exec(toml ?? '')![1]!, 'g'),
    github: new RegExp(
      `(?:${anchored(github['before_secret'])})${github['secret_format']}(?=${anchored(github['after_secret'])})`,
      'g',
    ),
  };
}

const FOUND = /svc_sk_[a-z0-9]{12}_[A-Za-z0-9_-]{49}/;
const PLACES = [
  (key: string) => key,
  (key: string) => `SVC_API_KEY=${key}\n`,
  (key: string) => `{"api_key":"${key}"}`,
  (key: string) => `curl -H 'X-Svc-Api-Key: ${key}' https://x`,
  (key: string) => `https://x/?k=${key}&a=b`,
  (key: string) => `key: ${key} # ours`,
];

it('documented pattern for secret scanners > matches every issued key in any context', async () => {
  for (const pattern of Object.values(await patterns())) {
    for (let i = 0; i < 500; i += 1) {
      const key = newKey();
      const text = PLACES[i % PLACES.length]!(key);
      const found = text.match(pattern)?.map((one) => FOUND.exec(one)?.[0]);
      expect(found, text).toEqual([key]);
    }
  }
});

it('source repository > contains only example keys', async () => {
  const { stdout } = await promisify(execFile)('git', ['ls-files', '-z'], { cwd: packageRoot });
  const files = stdout.split('\0').filter((file) => file !== '');
  expect(files.length).toBeGreaterThan(500);
  const leaked: string[] = [];
  for (const file of files) {
    const text = await readFile(join(packageRoot, file), 'latin1').catch(() => '');
    for (const [one] of text.matchAll(new RegExp(FOUND, 'g'))) {
      const key = parseApiKey(one);
      if (key !== null && !EXAMPLE_IDS.includes(key.keyId)) leaked.push(`${file}: ${key.keyId}`);
    }
  }
  expect(leaked).toEqual([]);
});

describe('svc command line', () => {
  // A server that echoes the headers of requests, as debugging servers do.
  const echo: RequestListener = (req, res) => {
    const heard = req.rawHeaders.join(' ');
    if (req.url?.includes('format=pdf') === true) {
      res.writeHead(200, { 'Content-Type': 'application/pdf' });
      res.end(`%PDF-1.7 ${heard}`);
      return;
    }
    res.writeHead(401, heard, { 'Content-Type': 'application/problem+json' });
    res.end(
      JSON.stringify({
        type: 'urn:svc:problem:unauthenticated',
        title: heard,
        status: 401,
        detail: `Not this one: ${heard}`,
        code: 'unauthenticated',
        request_id: heard,
        errors: [{ pointer: heard, detail: heard }],
        [heard]: heard,
      }),
    );
  };
  const key = newKey();
  const secret = key.slice(20, 63);
  let server: LocalServer;
  let folder: Folder;
  beforeAll(async () => {
    [server, folder] = await Promise.all([serveLocally(echo), openFolder()]);
  });
  afterAll(() => server.close());

  it.each([
    ['SVC_API_KEY', key],
    ['SVC_API_KEY with a line break', `${key.slice(0, 30)}\n${key.slice(30)}`],
    ['SVC_API_KEY without the form of a key', secret],
  ])('never prints the API key from %s', async (_, value) => {
    const env = {
      SVC_ENGINE_URL: server.url,
      SVC_TENANT_ID: 'acme',
      SVC_API_KEY: value,
    };
    const id = '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f';
    for (const args of [
      ['export', id],
      ['replay', id, '--json'],
    ]) {
      const { code, stdout, stderr } = await svc([...args, '--timeout', '2'], { env });
      expect(code).not.toBe(0);
      for (const part of [secret.slice(0, 10), secret.slice(-20)]) {
        expect(stdout + stderr).not.toContain(part);
      }
    }
  });

  it('neither prints nor writes a document that contains the API key', async () => {
    const file = join(folder.path, await folder.write('key', `${key}\n`));
    const env = { SVC_ENGINE_URL: server.url, SVC_TENANT_ID: 'acme', SVC_API_KEY_FILE: file };
    const paper = ['export', '019aa2c1e07b7c0f8a3e5d6b7c8d9e0f', '--format', 'pdf'];
    const out = join(folder.path, 'proof.pdf');
    for (const args of [paper, [...paper, '--out', out]]) {
      const { code, stdout, stderr } = await svc(args, { env });
      expect([code, stdout]).toEqual([3, '']);
      expect(stderr).toContain('the response contains the API key');
      expect(stderr).not.toContain(secret.slice(0, 10));
    }
    expect(existsSync(out)).toBe(false);
  });
});
