import { utimesSync } from 'node:fs';
import { join } from 'node:path';
import type { Facade } from '#api/public/facade';
import { httpSource, type HttpSourceOptions } from '#api/public/snapshot/http-source';
import type { SnapshotSource } from '#api/public/snapshot/source';
import { parseTime } from '#protocol/time';
import type { Publisher } from '#publisher/publisher';
import { startNginx, type TestNginx } from './nginx.js';
import { TestSnapshot } from './snapshot.js';

export const MANIFEST = 'lookup/manifest';
export const READABLE = { status: 200 };
export const UNREADABLE = { status: 503, code: 'snapshot_unreadable' };

interface Remote {
  facade: Facade;
  url: string;
  look(id: string): Promise<{ status: number; code?: string; age: string | null }>;
  ready(): Promise<{ status: number; body: Record<string, unknown> }>;
}

/** A snapshot, an nginx that gives it out, and facades that have it from there. */
export class RemoteWorld {
  readonly publisher: Publisher;

  private constructor(
    readonly snapshot: TestSnapshot,
    readonly nginx: TestNginx,
  ) {
    this.publisher = snapshot.publisher();
  }

  static async open(): Promise<RemoteWorld> {
    const snapshot = new TestSnapshot();
    return new RemoteWorld(snapshot, await startNginx(snapshot.directory));
  }

  at(path: string): string {
    return join(this.snapshot.directory, path);
  }

  async publish(proofs: number): Promise<string[]> {
    const { registry, clock } = this.snapshot;
    clock.at += 1000;
    const ids = registry.addProofs(proofs);
    registry.verify();
    await this.publisher.runCycle();
    // Long unchanged, so that its entity tag is believed.
    utimesSync(this.at(MANIFEST), 1_700_000_000, 1_700_000_000);
    return ids;
  }

  remote(options: HttpSourceOptions = {}): SnapshotSource {
    return httpSource(this.nginx.url, options);
  }

  async startFacade(source: SnapshotSource = this.remote()): Promise<Remote> {
    const facade = this.snapshot.facade({ source });
    const { url } = await this.snapshot.serve(facade);
    return {
      facade,
      url,
      look: async (id) => {
        const response = await fetch(`${url}/api/public/verify/proof/${id}`);
        const { code } = (await response.json()) as { code?: string };
        const issuedAt = response.headers.get('x-svc-snapshot-issued-at');
        const age = issuedAt && String((this.snapshot.clock.at - parseTime(issuedAt)) / 1000);
        return { status: response.status, age, ...(code !== undefined && { code }) };
      },
      ready: async () => {
        const response = await fetch(`${url}/readyz`);
        const body = (await response.json()) as Record<string, unknown>;
        return { status: response.status, body };
      },
    };
  }

  async close(): Promise<void> {
    await this.snapshot.close();
    await this.nginx.close();
  }
}
