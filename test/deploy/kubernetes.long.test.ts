import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { packageRoot } from '#runtime/process/files';
import { readCompose } from '../fixtures/compose/file.js';

const PROGRAMS = ['engine', 'worker', 'verifier', 'publisher', 'facade'];
const OPTIONAL = ['board', 'monitor', 'witness'];
const REQUIRED = {
  image: 'registry.example.org/svc@sha256:' + '0'.repeat(64),
  logOrigin: 'log.example.org/2026',
  publicUrl: 'https://registry.example.org',
};
const VALUES = {
  ...REQUIRED,
  ...Object.fromEntries(OPTIONAL.map((name) => [`programs.${name}.replicas`, 1])),
  'programs.monitor.env.MONITOR_URL': 'https://log.example.net',
  'programs.witness.env.WITNESS_NAME': 'witness.example.org/w1',
  'programs.witness.env.WITNESS_LOG_VKEYS': 'log.example.net+00000000+A',
};

const directory = mkdtempSync(join(tmpdir(), 'svc-units-'));

function run(program: string, ...args: string[]) {
  const { status, stdout, stderr, error } = spawnSync(program, args, { encoding: 'utf8' });
  if (error !== undefined) throw error;
  return { status, stdout, stderr };
}

const { TEST_HELM: helm = '', TEST_KUBERNETES_VALIDATE: validate = '' } = process.env;
const skips = (helm === '' || validate === '') && process.env['CI'] === undefined;
const without = skips ? ' (skipped: set TEST_HELM and TEST_KUBERNETES_VALIDATE)' : '';

interface Mount {
  name: string;
  mountPath: string;
  readOnly?: boolean;
}

interface Pod {
  serviceAccountName: string;
  automountServiceAccountToken: boolean;
  securityContext: { runAsNonRoot: boolean; runAsUser: number; fsGroup: number };
  containers: {
    securityContext: object;
    volumeMounts: Mount[];
    env: { name: string; value: string }[];
    readinessProbe?: { httpGet: { path: string } };
    resources: { requests: object };
  }[];
  volumes: {
    name: string;
    persistentVolumeClaim?: { claimName: string };
    projected?: { defaultMode: number; sources: { secret: { name: string } }[] };
  }[];
}

interface Resource {
  kind: string;
  metadata: { name: string };
  spec: {
    template?: { spec: Pod };
    jobTemplate?: { spec: { template: { spec: Pod } } };
    ingress?: { from?: unknown }[];
    egress?: { to?: unknown; ports: { port: number }[] }[];
  };
}

const render = (values: object) =>
  run(
    helm,
    ...['template', 'svc', join(packageRoot, 'deploy/helm'), '--kube-version', '1.33.0'],
    ...Object.entries(values).flatMap(([name, value]) => [
      '--set-json',
      `${name}=${JSON.stringify(value)}`,
    ]),
  );

describe.skipIf(skips)(`deploy/helm${without}`, () => {
  const text = skips ? '' : render(VALUES).stdout;
  const resources = parseAllDocuments(text).map((one) => one.toJS() as Resource);
  const of = (kind: string) => resources.filter((one) => one.kind === kind);
  const pods = resources.flatMap(({ metadata, spec }) => {
    const pod = spec?.template?.spec ?? spec?.jobTemplate?.spec.template.spec;
    return pod === undefined ? [] : [{ name: metadata.name.replace('svc-', ''), pod }];
  });
  const { services } = readCompose({ LOG_ORIGIN: 'x', PUBLIC_URL: 'x' });

  it.each(['1.29.0', '1.37.0'])('conforms to the schemas of Kubernetes %s', (version) => {
    const file = join(directory, 'rendered.yaml');
    writeFileSync(file, text);
    const checked = run(validate, '--strict', '--quiet', '--kubernetes-version', version, file);
    expect([checked.status, checked.stdout]).toEqual([0, '']);
    writeFileSync(file, text.replaceAll('replicas:', 'replicaz:'));
    expect(run(validate, '--strict', '--kubernetes-version', version, file).status).not.toBe(0);
  });

  it('requires image, origin, public URL, and the settings of optional programs', () => {
    for (const name of Object.keys(VALUES).filter((one) => !one.endsWith('.replicas'))) {
      const refused = render({ ...VALUES, [name]: '' });
      expect([refused.status, refused.stderr]).toEqual([
        1,
        expect.stringMatching(new RegExp(`set ${name}\\b`)),
      ]);
    }
  });

  it('omits optional programs by default', () => {
    const { stdout } = render(REQUIRED);
    for (const name of OPTIONAL) expect(stdout).not.toContain(name);
  });

  it('writes every number in full, and keeps a value of 0 or false', () => {
    const { stdout } = render({
      ...REQUIRED,
      settings: { RATE_LIMIT: 1_000_000, ADMISSIONS_PAUSED: true, SHUTDOWN_DELAY: 0 },
      'programs.worker.env.ADMISSIONS_PAUSED': false,
      'programs.worker.env.OTEL_TRACES_SAMPLER_ARG': 0.01,
    });
    expect(stdout).toContain('{ name: RATE_LIMIT, value: "1000000" }');
    expect(stdout).toContain('{ name: SHUTDOWN_DELAY, value: "0" }');
    expect(stdout).toContain('{ name: OTEL_TRACES_SAMPLER_ARG, value: "0.01" }');
    expect(stdout.match(/ADMISSIONS_PAUSED, value: "false"/g)).toHaveLength(1);
  });

  it('keeps the state of monitor and witness in a volume of one pod', () => {
    const claims = of('PersistentVolumeClaim').map(({ metadata }) => metadata.name);
    expect(claims).toEqual(['svc-monitor', 'svc-witness']);
    for (const { name, pod } of pods) {
      const claim = pod.volumes.find((one) => one.name === 'state')?.persistentVolumeClaim;
      const own = claims.find((one) => one === `svc-${name}`);
      expect([name, claim?.claimName]).toEqual([name, own]);
      if (own === undefined) continue;
      const { env, volumeMounts } = pod.containers[0]!;
      const { mountPath } = volumeMounts.find((mount) => mount.name === 'state')!;
      const setting = env.find((one) => one.name === `${name.toUpperCase()}_DIR`);
      expect(setting?.value).toBe(`${mountPath}/${name}`);
      expect(render({ ...VALUES, [`programs.${name}.replicas`]: 2 }).stderr).toContain(
        `programs.${name}.replicas must be 0 or 1`,
      );
    }
  });

  it('runs every program and job with the user, the secrets and the paths of docker-compose.yml', () => {
    expect(pods.map(({ name }) => name).sort()).toEqual(
      [...PROGRAMS, ...OPTIONAL, 'fsck', 'init'].sort(),
    );
    for (const { name, pod } of pods) {
      const service = services[name]!;
      expect([name, `${pod.securityContext.runAsUser}`]).toEqual([
        name,
        service.user?.split(':')[0],
      ]);
      const secrets = pod.volumes.flatMap(({ projected }) => projected?.sources ?? []);
      expect([name, secrets.map(({ secret }) => secret.name).sort()]).toEqual([
        name,
        [...(service.secrets ?? [])].map((one) => `svc-${one.replaceAll('.', '-')}`).sort(),
      ]);
      const { volumeMounts } = pod.containers[0]!;
      const snapshot = volumeMounts.find((mount) => mount.name === 'snapshot');
      const entry = service.volumes?.find((one) => one.startsWith('snapshot:'));
      expect([name, snapshot?.readOnly]).toEqual([name, entry && entry.endsWith(':ro')]);
    }
  });

  it('gives each pod its own account without a token, no capabilities and a read-only file system', () => {
    expect(new Set(pods.map(({ pod }) => pod.serviceAccountName)).size).toBe(pods.length);
    for (const { name, pod } of pods) {
      expect([name, pod]).toEqual([
        name,
        expect.objectContaining({
          serviceAccountName: `svc-${name}`,
          automountServiceAccountToken: false,
          securityContext: expect.objectContaining({
            runAsNonRoot: true,
            // Kubernetes lets the group of the program read the files of its secrets.
            fsGroup: pod.securityContext.runAsUser,
          }) as object,
        }),
      ]);
      expect([name, pod.containers[0]?.securityContext]).toEqual([
        name,
        {
          allowPrivilegeEscalation: false,
          readOnlyRootFilesystem: true,
          capabilities: { drop: ['ALL'] },
        },
      ]);
      expect([name, pod.containers[0]?.resources.requests]).toEqual([name, expect.anything()]);
    }
  });

  it('allows each program only the connections that it needs, and the public API no outgoing connection', () => {
    const reached = of('NetworkPolicy').map(({ metadata, spec }) => [
      metadata.name,
      [...new Set(spec.egress?.flatMap(({ ports }) => ports.map(({ port }) => port)))],
    ]);
    expect(Object.fromEntries(reached)).toEqual({
      'svc-engine': [53, 5432, 6379],
      'svc-worker': [53, 5432, 6379],
      'svc-verifier': [53, 5432],
      'svc-publisher': [53, 5432],
      'svc-facade': [],
      'svc-board': [53, 6379],
      'svc-monitor': [53, 443],
      'svc-witness': [],
      'svc-init': [53, 5432],
      'svc-fsck': [53, 5432],
    });
    const peer = [{ ipBlock: { cidr: '10.0.0.0/8' } }];
    const network = { clients: peer, operations: peer, database: peer, queue: peer, logs: peer };
    const bounded = parseAllDocuments(render({ ...VALUES, network }).stdout).map(
      (one) => one.toJS() as Resource,
    );
    for (const { kind, metadata, spec } of bounded) {
      if (kind !== 'NetworkPolicy') continue;
      const ends = [
        ...(spec.ingress ?? []).map(({ from }) => from),
        ...(spec.egress ?? []).map(({ to }) => to),
      ];
      expect([metadata.name, ends]).not.toContainEqual(expect.arrayContaining([undefined]));
    }
  });

  it('keeps the snapshot in a bucket and a key in AWS KMS without a volume or a file', () => {
    const rendered = render({
      ...REQUIRED,
      snapshotStore: 'gs://bucket/log',
      'programs.worker.secrets': ['worker-database-url', 'redis-url'],
      'programs.worker.env.AEP_KEY_FILE': null,
      'programs.worker.env.AEP_ROOT_KEY_FILE': 'awskms:///alias/root',
      'programs.worker.egress': ['database', 'queue', 'cloud'],
      'programs.facade.serviceAccountAnnotations': { role: 'reader' },
      'fsck.envFrom': [{ secretRef: { name: 'cloud' } }],
      'fsck.serviceAccountAnnotations': { role: 'checker' },
      'network.egress': [{ ports: [{ port: 4318 }] }],
    }).stdout;
    expect(rendered).not.toMatch(/SNAPSHOT_DIR|\/srv\/public|persistentVolumeClaim/);
    expect(rendered.match(/SNAPSHOT_STORE, value: "gs:\/\/bucket\/log"/g)).toHaveLength(3);
    expect(rendered).not.toMatch(/AEP_KEY_FILE|svc-aep-key-pem/);
    expect(rendered).toContain('AEP_ROOT_KEY_FILE, value: "awskms:///alias/root"');
    const found = parseAllDocuments(rendered).map((one) => one.toJS() as Resource);
    const reached = found.filter(({ spec }) =>
      spec?.egress?.some(({ ports }) => ports.some(({ port }) => port === 443)),
    );
    expect(reached.map(({ metadata }) => metadata.name).sort()).toEqual(
      ['facade', 'fsck', 'publisher', 'worker'].map((name) => `svc-${name}`),
    );
    const traced = found.filter(({ spec }) =>
      spec?.egress?.some(({ ports }) => ports.some(({ port }) => port === 4318)),
    );
    expect(traced).toHaveLength(7);
    expect(rendered).toMatch(
      /name: svc-facade\n(?:.*\n)*?  annotations:\n    role: reader\nautomount/,
    );
    expect(rendered).toMatch(
      /name: svc-fsck\n(?:.*\n)*?  annotations:\n    role: checker\nautomount/,
    );
    expect(rendered).toMatch(/envFrom:\s+- secretRef:\s+name: cloud/);
    const file = join(directory, 'cloud.yaml');
    writeFileSync(file, rendered);
    expect(run(validate, '--strict', '--kubernetes-version', '1.37.0', file).status).toBe(0);
  });

  it('probes every program, and allows the eviction of one of several pods at a time', () => {
    const namesOf = (kind: string) =>
      of(kind)
        .map(({ metadata }) => metadata.name.replace('svc-', ''))
        .sort();
    const all = [...PROGRAMS, ...OPTIONAL];
    expect(namesOf('Deployment')).toEqual(all.sort());
    expect(namesOf('PodDisruptionBudget')).toEqual(PROGRAMS.toSorted());
    for (const { name, pod } of pods.filter((one) => all.includes(one.name))) {
      expect([name, pod.containers[0]?.readinessProbe?.httpGet.path]).toEqual([name, '/readyz']);
    }
  });
});

const hasSystemd = spawnSync('systemd-analyze', ['--version'], { stdio: 'ignore' }).status === 0;

it.skipIf(!hasSystemd && process.env['CI'] === undefined)(
  'deploy/systemd > has a unit that systemd accepts and that confines the programs',
  () => {
    const unit = join(directory, 'svc@engine.service');
    copyFileSync(join(packageRoot, 'deploy/systemd/svc@.service'), unit);
    const verified = run('systemd-analyze', 'verify', '--man=no', unit);
    const complaints = verified.stderr
      .split('\n')
      .filter((line) => line.includes('svc@') && !line.includes('not executable'));
    expect(complaints).toEqual([]);
    const { stdout } = run('systemd-analyze', 'security', '--offline=yes', '--threshold=20', unit);
    expect(stdout).toMatch(/Overall exposure level for svc@engine.service: 1\.\d OK/);
    // V8 calls pkey_alloc when it starts, so the filter must allow this system call.
    const [, groups = ''] = /^SystemCallFilter=(.*)$/m.exec(readFileSync(unit, 'utf8')) ?? [];
    const allowed = run('systemd-analyze', 'syscall-filter', ...groups.split(' ')).stdout;
    expect(allowed).toMatch(/^\s+pkey_alloc$/m);
  },
);
