import { execFileSync } from 'node:child_process';
import { chmodSync, cpSync, mkdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { packageRoot } from '#runtime/process/package-root';

const dockerfile = (): string => readFileSync(join(packageRoot, 'Dockerfile'), 'utf8');

/** What `npm ci` would install without `dev`, `optional` and `peer`, as the lock file has it. */
function productionPackages(): string[] {
  const lock = JSON.parse(readFileSync(join(packageRoot, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, Record<string, unknown>>;
  };
  return Object.entries(lock.packages)
    .filter(
      ([path, entry]) =>
        path.startsWith('node_modules/') &&
        !['dev', 'optional', 'devOptional', 'peer', 'link'].some((flag) => entry[flag] === true),
    )
    .map(([path]) => path);
}

/** Lines of the last stage, which are what the image consists of. */
function lastStage(): string[] {
  const text = dockerfile();
  return text.slice(text.lastIndexOf('\nFROM ')).split('\n');
}

/**
 * What the image has below /svc, copied as the last stage of the Dockerfile says, owned by root and
 * readable by every user; with the Node that runs this, or the one that `NODE_LTS` names.
 */
export function makeImage(directory: string): { root: string; node: string } {
  execFileSync('node_modules/.bin/tsc', ['--build', 'programs'], { cwd: packageRoot });
  const root = join(directory, 'svc');
  mkdirSync(root, { recursive: true });
  for (const line of lastStage()) {
    const [, from, source, target] = /^COPY (--from=\w+ )?(\S+) (\S+)$/.exec(line) ?? [];
    if (source === undefined || target === undefined) continue;
    const relative = source.replace(/^\/svc\//, '');
    if (from !== undefined && relative === 'node_modules') {
      for (const path of productionPackages()) {
        // Packages inside packages have entries of their own.
        cpSync(join(packageRoot, path), join(root, path), {
          recursive: true,
          filter: (file) => !file.slice(join(packageRoot, path).length).includes('/node_modules'),
        });
      }
    } else {
      const to = target === './' ? join(root, relative) : join(root, target);
      mkdirSync(dirname(to), { recursive: true });
      cpSync(join(packageRoot, relative), to, { recursive: true });
    }
  }
  execFileSync('chmod', ['-R', 'u=rwX,go=rX', root]);
  // Where the one that runs this lies, other users may not look.
  const node = join(directory, 'node');
  cpSync(process.env['NODE_LTS'] ?? process.execPath, node, { dereference: true });
  chmodSync(node, 0o755);
  return { root, node };
}

/** Owner of a folder that the image has, as a new volume would take it over. */
export function imageFolderOwner(path: string): { uid: number; gid: number } | null {
  const made = new RegExp(`^RUN install -d -o (\\d+) -g (\\d+) -m \\d+ ${path}$`, 'm').exec(
    dockerfile(),
  );
  return made === null ? null : { uid: Number(made[1]), gid: Number(made[2]) };
}
