import { expect } from 'vitest';
import type { Facade } from '#api/public/facade';
import { facadeSchema, type Facade as FacadeBody } from '#protocol/schemas/facade';
import { listen, type HttpServer } from '#runtime/http/server';
import { callAt, type Call, type Reply as AnyReply } from './public-call.js';
import { proofIdAt, TestSnapshot } from './snapshot.js';

export type Reply = AnyReply & { body: FacadeBody };

export const LOOKUP = 'svc.public_verification.lookup_request/1.0';
export const unknown = proofIdAt(1_700_000_000_000, 'unknown');

/** A facade over proofs of several windows and of every standing, for one suite to look them up. */
export class LookupWorld {
  readonly snapshot = new TestSnapshot();
  readonly old: string;
  readonly recent: string;
  readonly denied: string;
  readonly revoked: string;
  facade!: Facade;
  /** The listener with its shortcut, and the Express app alone. */
  server!: HttpServer;
  expressOnly!: HttpServer;

  constructor() {
    const { registry } = this.snapshot;
    this.old = registry.addProof();
    registry.addProofs(5);
    this.revoked = registry.addProof();
    this.denied = registry.addProof({ effect: 'DENY' });
    this.recent = registry.addProof();
    registry.revoke(this.revoked);
    registry.verify();
  }

  async open(): Promise<void> {
    await this.snapshot.publisher({ recentLookupLimit: 4 }).runCycle();
    this.facade = this.snapshot.facade();
    this.server = await this.snapshot.serve(this.facade);
    this.expressOnly = await listen(this.facade.app, { host: '127.0.0.1', port: 0 });
  }

  async close(): Promise<void> {
    await this.expressOnly.close(0);
    await this.snapshot.close();
  }

  readonly call = (path: string, options?: Call): Promise<Reply> =>
    callAt(this.server, path, options) as Promise<Reply>;

  readonly post = (body: unknown, headers: Record<string, string> = {}): Promise<Reply> =>
    this.call('/api/public/verify', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', ...headers },
      body: typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body),
    });
}

export const code = (reply: Reply): unknown => (reply.body as unknown as { code: string }).code;

export function expectUnresolved(reply: Reply, kind: string, requested: string): void {
  expect(reply.status).toBe(200);
  expect(facadeSchema.parse(reply.body)).toEqual(reply.body);
  expect(reply.body).toMatchObject({
    artifact_kind: kind,
    identifier: requested,
    lookup: { requested, matched_on: null },
    artifact: {},
    trust_chain: { available: false, sequence: [] },
    verification: {
      verification_status: 'BACKEND_LOOKUP_REQUIRED',
      can_assert_validity: false,
      frontend_recomputed: false,
    },
  });
}
