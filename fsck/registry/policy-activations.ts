import type { Aep } from '#protocol/schemas/aep';
import { parseTime } from '#protocol/time';
import { activeSince } from '#sql/fsck/admissions';
import type { RegistryContext } from './context.js';

/** Checks that the policy set of each proof was active when the admission was accepted. */
export class PolicyActivations {
  /** The first activation of each set, by digest; null without an activation. */
  private readonly since = new Map<string, number | null>();

  constructor(private readonly ctx: RegistryContext) {}

  async check({ policy: { digest }, accepted_at: acceptedAt }: Aep): Promise<void> {
    const { sql, findings } = this.ctx;
    if (!this.since.has(digest)) this.since.set(digest, await activeSince(sql, digest));
    if ((this.since.get(digest) ?? Infinity) <= parseTime(acceptedAt)) return;
    const where = `svc.policy_activation digest=${digest}`;
    const expected = `an activation at ${acceptedAt}, when a proof was accepted, or earlier`;
    findings.add('policy_activation_differs', where, expected);
  }
}
