import { execFile, spawnSync } from 'node:child_process';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { existsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { packageRoot } from '#runtime/process/package-root';

const run = promisify(execFile);

/** Where Debian has the sources of Go packages. */
const GO_PATH = '/usr/share/gocode';

const has = (program: string, ...args: string[]): boolean =>
  spawnSync(program, args, { stdio: 'ignore' }).status === 0;

/** Of the tools that the documentation names, those that are not here. */
export const missingTools = [
  ...(['jq', 'openssl', 'sha256sum'] as const).filter(
    (name) => !has(name, name === 'openssl' ? 'version' : '--version'),
  ),
  ...(has('go', 'version') ? [] : ['golang-go']),
  ...(existsSync(join(GO_PATH, 'src/golang.org/x/mod/sumdb')) ? [] : ['golang-golang-x-mod-dev']),
];

/** Appended to what is skipped for want of them. CI skips nothing, so there it fails instead. */
export const withoutTools =
  missingTools.length === 0 ? '' : ` (skipped: install ${missingTools.join(', ')})`;

/** The shell blocks below a heading of a page, as a reader would copy them. */
export async function shellBlocks(page: string, heading: string): Promise<string[]> {
  const text = await readFile(join(packageRoot, page), 'utf8');
  const start = text.indexOf(`\n${heading}\n`);
  if (start < 0) throw new Error(`${page} has no ${heading}`);
  const rest = text.slice(start + heading.length + 2);
  const end = rest.search(/^#{1,6} /m);
  const section = end < 0 ? rest : rest.slice(0, end);
  return [...section.matchAll(/^```sh\n([^]*?)^```$/gm)].map(([, block = '']) => block);
}

export interface Workplace {
  write(name: string, content: string | Uint8Array): Promise<void>;
  /** What a block printed; rejects when it fails. */
  paste(block: string): Promise<string>;
  remove(): Promise<void>;
}

/** A folder with the program that the page calls, and what it says to set. */
export async function workplace(env: Record<string, string>): Promise<Workplace> {
  const dir = await mkdtemp(join(tmpdir(), 'svc-other-tools-'));
  await cp(join(packageRoot, 'examples', 'verify-with-go', 'main.go'), join(dir, 'main.go'));
  const { PATH = '', HOME = dir } = process.env;
  const go = { GO111MODULE: 'off', GOPATH: GO_PATH, GOFLAGS: '', GOCACHE: join(dir, 'cache') };
  return {
    write: (name, content) => writeFile(join(dir, name), content),
    paste: async (block) => {
      const options = { cwd: dir, env: { PATH, HOME, ...go, ...env }, timeout: 120_000 };
      return (await run('bash', ['-c', block], options)).stdout;
    },
    remove: () => rm(dir, { recursive: true, force: true }),
  };
}
