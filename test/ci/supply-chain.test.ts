import { execFile } from 'node:child_process';
import { chmod, mkdtemp, readFile, writeFile } from 'node:fs/promises';
import { existsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import { beforeAll, describe, expect, it } from 'vitest';
import { packageRoot } from '#runtime/process/files';

interface Locked {
  version?: string;
  license?: string;
  integrity?: string;
  resolved?: string;
  dev?: boolean;
  /** Whether development and optional peer dependencies of the SDK need this package. */
  devOptional?: boolean;
  link?: boolean;
}

const read = async <T>(...path: string[]): Promise<T> =>
  JSON.parse(await readFile(join(packageRoot, ...path), 'utf8')) as T;

let production: [path: string, locked: Locked][];
beforeAll(async () => {
  const lock = await read<{ packages: Record<string, Locked> }>('package-lock.json');
  production = Object.entries(lock.packages).filter(
    ([path, { dev, devOptional, link }]) =>
      path.includes('node_modules/') && !(dev ?? devOptional ?? link ?? false),
  );
});

describe('production dependencies', () => {
  it('have allowed licences', async () => {
    const { allowed, exceptions } = await read<{
      allowed: string[];
      exceptions: Record<string, string>;
    }>('.ci', 'licences.json');
    /** Whether an SPDX expression is allowed: one alternative of OR is enough, and every part of AND must be. */
    const isAllowed = (expression: string): boolean =>
      expression
        .replaceAll(/[()]/g, '')
        .split(' OR ')
        .some((one) => one.split(' AND ').every((licence) => allowed.includes(licence)));
    const refused: string[] = [];
    for (const [path, { version, license }] of production) {
      const name = `${path.replace(/.*node_modules\//, '')}@${String(version)}`;
      const file = join(path, 'package.json');
      // Packages of other platforms are not installed; the lockfile has their licence.
      const installed = existsSync(join(packageRoot, file))
        ? (await read<{ license?: string }>(file)).license
        : license;
      const licence = installed ?? license ?? 'none';
      if (!(name in exceptions) && !isAllowed(licence)) refused.push(`${name}: ${licence}`);
    }
    expect(production.length).toBeGreaterThan(50);
    expect(refused).toEqual([]);
    const names = production.map(
      ([path, { version }]) => `${path.replace(/.*node_modules\//, '')}@${String(version)}`,
    );
    expect(Object.keys(exceptions).filter((name) => !names.includes(name))).toEqual([]);
  });

  it('come from the npm registry, with an integrity hash', () => {
    const loose = production.filter(
      ([, { resolved, integrity }]) =>
        (resolved !== undefined && !resolved.startsWith('https://registry.npmjs.org/')) ||
        integrity?.startsWith('sha512-') !== true,
    );
    expect(loose).toEqual([]);
  });

  it('match the SBOM exactly', async () => {
    const { stdout } = await promisify(execFile)('npm', ['run', '--silent', 'sbom'], {
      cwd: packageRoot,
      maxBuffer: 64 * 1024 * 1024,
    });
    const bom = JSON.parse(stdout) as {
      bomFormat: string;
      specVersion: string;
      serialNumber: string;
      metadata: { component: { 'bom-ref': string; name: string } };
      components: {
        'bom-ref': string;
        name: string;
        version: string;
        purl: string;
        hashes?: unknown[];
      }[];
      dependencies: { ref: string; dependsOn?: string[] }[];
    };
    expect(bom).toMatchObject({ bomFormat: 'CycloneDX', specVersion: '1.5' });
    expect(bom.serialNumber).toMatch(/^urn:uuid:[0-9a-f-]{36}$/);
    const refs = bom.components.map((one) => one['bom-ref']);
    expect(new Set(refs).size).toBe(refs.length);
    // Every edge of the graph ends in a component, and every component is in the graph.
    const known = new Set([...refs, bom.metadata.component['bom-ref']]);
    const edges = bom.dependencies.flatMap(({ ref, dependsOn = [] }) => [ref, ...dependsOn]);
    expect(edges.filter((ref) => !known.has(ref))).toEqual([]);
    for (const { purl, version } of bom.components) {
      expect(purl).toMatch(/^pkg:npm\//);
      expect(decodeURIComponent(purl)).toContain(`@${version}`);
    }
    const listed = new Set(bom.components.map(({ name, version }) => `${name}@${version}`));
    const installed = production
      .filter(([path]) => existsSync(join(packageRoot, path, 'package.json')))
      .map(([path, { version }]) => `${path.replace(/.*node_modules\//, '')}@${String(version)}`);
    expect(installed.filter((name) => !listed.has(name))).toEqual([]);
    const names = new Set(installed);
    const others = [...listed].filter((name) => !names.has(name) && !/^(?:svc-)?sdk@/.test(name));
    expect(others).toEqual([]);
  });
});

describe('audit', () => {
  let dir: string;
  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), 'svc-audit-'));
  });

  /** Runs the audit with a fake npm that prints this response. */
  async function audit(answer: string): Promise<{ code: number; said: string }> {
    const npm = join(dir, 'npm');
    await writeFile(npm, `#!/bin/sh\ncat <<'EOF'\n${answer}\nEOF\nexit 1\n`);
    await chmod(npm, 0o755);
    const env = { ...process.env, PATH: `${dir}${delimiter}${process.env['PATH'] ?? ''}` };
    return promisify(execFile)(process.execPath, ['.ci/audit.mjs'], { cwd: packageRoot, env }).then(
      ({ stdout }) => ({ code: 0, said: stdout }),
      (error: { code: number; stdout: string }) => ({ code: error.code, said: error.stdout }),
    );
  }

  const vulnerable = (node: string, severity: string): string =>
    JSON.stringify({
      auditReportVersion: 2,
      vulnerabilities: { it: { name: 'it', severity, nodes: [node] } },
    });

  it('reports an unreachable registry as neither success nor failure', async () => {
    for (const answer of ['', '{"message":"405 Method Not Allowed","statusCode":405}', '<html>']) {
      const { code, said } = await audit(answer);
      expect([code, said]).toEqual([3, 'audit: no answer from the npm registry\n']);
    }
  });

  it('fails only for vulnerabilities of at least moderate severity in production dependencies', async () => {
    expect((await audit('{"auditReportVersion":2,"vulnerabilities":{}}')).code).toBe(0);
    expect((await audit(vulnerable('node_modules/express', 'high'))).code).toBe(1);
    expect((await audit(vulnerable('node_modules/express', 'moderate'))).code).toBe(1);
    expect((await audit(vulnerable('node_modules/express', 'low'))).code).toBe(0);
    const development = await audit(vulnerable('node_modules/vitest', 'critical'));
    expect(development).toMatchObject({ code: 0 });
    expect(development.said).toContain('critical in it (development only)');
  });
});
