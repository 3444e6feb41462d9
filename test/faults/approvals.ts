import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { engineHeaders } from '#bench/harness/engine-api';
import type { Approval } from '#protocol/schemas/approvals';
import { keysInLog } from '#sql/log/keys';
import { admissionEnvelope } from '../fixtures/agent.js';
import { activateHold } from '../fixtures/approval-world.js';
import { newApprover } from '../fixtures/approvals.js';
import { Act } from './acts.js';
import type { Audited } from './audit.js';
import type { Client } from './client.js';
import type { Scene } from './fault.js';
import { until } from './pace.js';
import type { ExpectedStatus } from './public.js';
import type { World } from './world.js';

const DECIDED_MS = 15_000;

/** An approver whom the operator registers; its activation is in the log once. */
export class ApproverRegistration extends Act {
  readonly approver = newApprover(this.client.tenantId);

  constructor(
    client: Client,
    private readonly world: World,
  ) {
    super(client);
  }

  get what(): string {
    return `the registration of approver ${this.approver.registrationHash}`;
  }

  /** Like an operator who saw no success message, first checks whether an earlier command took effect. */
  async send(): Promise<boolean> {
    const { registration, registrationHash } = this.approver;
    const { admin, dir } = this.world;
    const listed = await admin(['approver', 'list', this.client.tenantId]);
    if (!JSON.stringify(listed).includes(registrationHash)) {
      const file = join(dir, `${registrationHash}.json`);
      await writeFile(file, JSON.stringify(registration));
      await admin(['approver', 'add', this.client.tenantId, file]);
    }
    return this.acknowledge(registrationHash);
  }

  expectedStatuses(): ExpectedStatus[] {
    return [];
  }

  override async audit({ database }: World, found: Audited): Promise<void> {
    const entries = (await keysInLog(database.sql)) ?? [];
    const own = entries.filter(
      ({ entry }) =>
        entry.type === 'key' &&
        entry.use === 'approver' &&
        entry.registration_hash === this.approver.registrationHash,
    );
    const list = own.length === 0 ? found.lost : found.double;
    if (own.length !== 1) list.push(`${this.what} is in the log ${String(own.length)} times`);
  }
}

/** An approval, which causes one second decision about its pending proof. */
class ApprovedAdmission extends Act {
  override readonly proofIds: string[] = [];
  private readonly envelope = JSON.stringify(
    admissionEnvelope({ tenant_id: this.client.tenantId, action: 'PAY' }),
  );
  private approval: Approval | null = null;

  constructor(
    client: Client,
    private readonly registration: ApproverRegistration,
    private readonly apiKey: string,
  ) {
    super(client);
  }

  get what(): string {
    return `the approval of ${this.proofIds[0] ?? 'an admission'}`;
  }

  async send(): Promise<boolean> {
    this.approval ??= await this.sign();
    if (this.approval === null) return false;
    const sent = await this.callAs('POST', '/v1/approvals', JSON.stringify(this.approval));
    if (sent.status !== 202) return this.reject(sent.status, sent.text);
    const second = (JSON.parse(sent.text) as { proof_id: string }).proof_id;
    const { status, text } = await this.callAs('GET', `/v1/admissions/${second}`);
    if (status !== 200) return status === 202 ? false : this.reject(status, text);
    this.proofIds[1] ??= second;
    return this.acknowledge(text);
  }

  expectedStatuses(): ExpectedStatus[] {
    return [{ path: `proof/${this.proofIds[1] ?? ''}`, status: 'VALID' }];
  }

  /**
   * Requests an action that requires an approval, and signs the approval; null while the request is
   * undecided.
   */
  private async sign(): Promise<Approval | null> {
    const held = await this.callAs('POST', '/v1/agent/admissions', this.envelope);
    const { proof_id, state } = JSON.parse(held.text) as { proof_id: string; state?: string };
    if (state !== 'approval_required') {
      if (held.status !== 202) this.reject(held.status, held.text);
      return null;
    }
    this.proofIds[0] = proof_id;
    const { status, text } = await this.callAs('GET', `/v1/approvals/${proof_id}`);
    if (status !== 200) {
      this.reject(status, text);
      return null;
    }
    const { evidence } = JSON.parse(text) as { evidence: { entry: { aep_hash: string } } };
    return this.registration.approver.approve(
      { proof_id, aep_hash: evidence.entry.aep_hash },
      { expires_at: '2099-01-01T00:00:00.000Z' },
    );
  }

  private async callAs(method: string, path: string, body?: string) {
    const url = this.client.urlFor(this) + path;
    this.attempts += 1;
    const { apiKey } = this;
    const headers = engineHeaders({ apiKey, tenantId: this.client.tenantId });
    const [status, text] = await this.client.call(url, method, body, { headers });
    return { status, text };
  }
}

export async function registerApprover({ client, world }: Scene): Promise<ApproverRegistration> {
  const registration = new ApproverRegistration(client, world);
  await client.acts.begin(registration);
  return registration;
}

/** Admits an action that requires an approval, and approves it. */
export async function approve(scene: Scene): Promise<void> {
  const { client, world } = scene;
  await activateHold(world.database.sql);
  const registration = await registerApprover(scene);
  const issue = ['key', 'issue', client.tenantId, '--review', 'REV-1', '--scopes', 'admit,approve'];
  const { api_key } = await world.admin(issue);
  const act = new ApprovedAdmission(client, registration, String(api_key));
  await client.acts.begin(act);
  // Repeats the request until the pending proof is decided, and then the approval until its second decision is decided.
  await until(() => client.acts.send(act), DECIDED_MS, 100);
}
