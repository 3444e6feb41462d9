import { type ChildProcess, spawn } from 'node:child_process';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { freePort } from './free-port.js';

const SLOTS = 16_384;
/** After so long without a sign of life a node counts as failed. */
const NODE_TIMEOUT_MS = 1_500;

/** One server of a cluster; started again on its port and files, it is the same node. */
export class RedisNode {
  private server: ChildProcess | null = null;
  id = '';
  private constructor(
    readonly port: number,
    private readonly busPort: number,
    private readonly dir: string,
  ) {}

  static async start(dir: string): Promise<RedisNode> {
    await mkdir(dir);
    const node = new RedisNode(await freePort(), await freePort(), dir);
    await node.start();
    node.id = await node.ask((client) => client.cluster('MYID'));
    return node;
  }

  async start(): Promise<void> {
    const settings = {
      bind: '127.0.0.1',
      port: this.port,
      dir: this.dir,
      save: '',
      appendonly: 'yes',
      'maxmemory-policy': 'noeviction',
      'cluster-enabled': 'yes',
      'cluster-port': this.busPort,
      'cluster-node-timeout': NODE_TIMEOUT_MS,
      'cluster-replica-validity-factor': 0,
    };
    const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, String(value)]);
    const server = spawn('redis-server', args, { stdio: 'ignore' });
    this.server = server;
    await new Promise((resolve, reject) => {
      server.once('spawn', resolve).once('error', reject);
    });
    await this.ask((client) => client.ping());
  }

  /** With SIGKILL. */
  async kill(): Promise<void> {
    const dying = this.server;
    this.server = null;
    if (dying === null || dying.exitCode !== null || dying.signalCode !== null) return;
    const gone = new Promise((resolve) => dying.once('exit', resolve));
    dying.kill('SIGKILL');
    await gone;
  }

  async ask<T>(question: (client: Redis) => Promise<T>): Promise<T> {
    const client = new Redis(this.port, '127.0.0.1', {
      maxRetriesPerRequest: null,
      retryStrategy: () => 20,
    });
    client.on('error', () => undefined);
    try {
      return await question(client);
    } finally {
      client.disconnect();
    }
  }

  async meet(other: RedisNode): Promise<void> {
    await this.ask((client) =>
      client.call('CLUSTER', 'MEET', '127.0.0.1', String(other.port), String(other.busPort)),
    );
  }
}

/** A Redis Cluster: three masters with a third of the slots each, and a replica of one of them. */
export class RedisCluster {
  private constructor(
    private readonly dir: string,
    readonly masters: readonly RedisNode[],
  ) {}
  /** Of the node that had the slot when it was made. */
  replica: RedisNode | null = null;

  /** What the programs are told. */
  get url(): string {
    return this.masters.map(({ port }) => `redis://127.0.0.1:${port}`).join(',');
  }

  static async start(): Promise<RedisCluster> {
    const dir = await mkdtemp(join(tmpdir(), 'svc-redis-cluster-'));
    const masters = await Promise.all([0, 1, 2].map((i) => RedisNode.start(join(dir, `${i}`))));
    const cluster = new RedisCluster(dir, masters);
    const share = Math.ceil(SLOTS / masters.length);
    for (const [i, node] of masters.entries()) {
      const last = Math.min(SLOTS, (i + 1) * share) - 1;
      await node.ask((client) =>
        client.call('CLUSTER', 'ADDSLOTSRANGE', String(i * share), String(last)),
      );
      await node.ask((client) => client.call('CLUSTER', 'SET-CONFIG-EPOCH', String(i + 1)));
      if (i > 0) await node.meet(masters[0]!);
    }
    await cluster.untilWhole();
    return cluster;
  }

  /** The master whose slot a key is in. */
  async ownerOf(key: string): Promise<RedisNode> {
    const slot = await this.masters[0]!.ask((client) => client.cluster('KEYSLOT', key));
    const share = Math.ceil(SLOTS / this.masters.length);
    return this.masters[Math.floor(Number(slot) / share)]!;
  }

  /** Gives a master a copy that takes over when it is gone. */
  async addReplicaOf(master: RedisNode): Promise<void> {
    const replica = await RedisNode.start(join(this.dir, 'replica'));
    this.replica = replica;
    await replica.meet(master);
    await until(async () => {
      const known = await replica.ask((client) => client.cluster('NODES') as Promise<string>);
      return this.masters.every(({ id }) => known.includes(id));
    });
    await replica.ask((client) => client.call('CLUSTER', 'REPLICATE', master.id));
    await until(async () =>
      (await replica.ask((client) => client.info('replication'))).includes('master_link_status:up'),
    );
  }

  /** Every slot is served, as every node that runs sees it. */
  async untilWhole(nodes: readonly RedisNode[] = this.masters): Promise<void> {
    await until(async () => {
      const states = await Promise.all(
        nodes.map((node) => node.ask((client) => client.cluster('INFO'))),
      );
      return states.every((state) => state.includes('cluster_state:ok'));
    });
  }

  async close(): Promise<void> {
    const nodes = this.replica === null ? this.masters : [...this.masters, this.replica];
    await Promise.all(nodes.map((node) => node.kill()));
    await rm(this.dir, { recursive: true, force: true, maxRetries: 10 });
  }
}

async function until(isSo: () => Promise<boolean>): Promise<void> {
  for (let tries = 0; tries < 600; tries += 1) {
    if (await isSo()) return;
    await sleep(25);
  }
  throw new Error('the cluster does not come to it');
}
