import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { USERS } from '#programs/admin/secret-files';
import { packageRoot } from '#runtime/process/files';

const skips =
  process.getuid?.() !== 0 || spawnSync('useradd', ['--help'], { stdio: 'ignore' }).status !== 0;

it.skipIf(skips)(
  `docs/deploy.md > creates users whose uid and group are those of their secrets${skips ? ' (skipped: needs root and useradd)' : ''}`,
  () => {
    const deploy = readFileSync(join(packageRoot, 'docs/deploy.md'), 'utf8');
    const [, commands = ''] = /\n## systemd\n.*?\n```\n(.*?)^cp /ms.exec(deploy) ?? [];
    const root = mkdtempSync(join(tmpdir(), 'svc-users-'));
    mkdirSync(join(root, 'etc'));
    for (const name of ['passwd', 'shadow', 'group', 'gshadow']) {
      writeFileSync(join(root, 'etc', name), '');
    }
    const elsewhere = ['groupadd', 'useradd'].map(
      (name) => `${name}() { command ${name} --prefix ${root} "$@"; }\n`,
    );
    const { status } = spawnSync('sh', ['-e', '-c', elsewhere.join('') + commands]);
    expect(status).toBe(0);
    const users = readFileSync(join(root, 'etc/passwd'), 'utf8').trim().split('\n');
    const created = users
      .map((user) => user.split(':'))
      .map(([name, , uid, gid]) => [name, uid, gid]);
    for (const program of [
      'engine',
      'worker',
      'verifier',
      'publisher',
      'board',
      'witness',
    ] as const) {
      const id = String(USERS[program]);
      expect(created).toContainEqual([`svc-${program}`, id, id]);
    }
  },
);
