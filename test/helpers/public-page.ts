import type { HttpServer } from '#runtime/http/server';
import { proofIdAt, TestSnapshot } from './snapshot.js';

/** What a person may ask the public page about, and what the JSON route says of it. */
export interface PageState {
  name: string;
  identifier: string;
  status: string;
  /** The page's own, and the JSON route's. */
  http: number;
  headline: string;
  jsonUrl: string;
}

export interface PageStates {
  snapshot: TestSnapshot;
  server: HttpServer;
  states: PageState[];
  /** By its name. */
  state(name: string): PageState;
}

/** Where the facade of {@link everyPageState} is published. */
export const PUBLIC_URL = 'https://registry.example';

const DAY = 86_400_000;

/** A proof that was judged anew every day of a month, each time differently. */
function longHistory({ registry, clock }: TestSnapshot): string {
  const { at } = clock;
  clock.at -= 30 * DAY;
  const proof = registry.addProof({ environment: 'live' });
  registry.verify();
  for (let day = 1; day <= 20; day++) {
    clock.at += DAY;
    registry.judge(proof, { outcome: day % 2 === 0 ? 'pass' : 'fail' });
  }
  clock.at = at;
  return proof;
}

/** A facade whose registry has an artifact in every state that there is. */
export async function everyPageState(): Promise<PageStates> {
  const snapshot = new TestSnapshot();
  const { registry } = snapshot;
  const eventful = longHistory(snapshot);
  const others = Array.from({ length: 16 }, () => registry.addProof({ environment: 'live' }));
  const outside = registry.addProof({ environment: 'live' });
  const sandbox = registry.addProof();
  const live = registry.addProof({ environment: 'live' });
  const denied = registry.addProof({ effect: 'DENY', environment: 'live' });
  const outcome = registry.addProof({ isOutcome: true, environment: 'live' });
  const deniedSandbox = registry.addProof({ effect: 'DENY' });
  const deniedRevoked = registry.addProof({ effect: 'DENY', environment: 'live' });
  const deniedExpired = registry.addProof({ effect: 'DENY', environment: 'live' });
  const revoked = registry.addProof({ environment: 'live' });
  const expired = registry.addProof({ environment: 'live' });
  const failed = registry.addProof({ environment: 'live' });
  const passportRevoked = registry.addProof({ environment: 'live' });
  registry.revoke(revoked);
  registry.revoke(passportRevoked, 'passport');
  registry.revoke(deniedRevoked);
  registry.verify();
  registry.judge(expired, { expired: ['proof'] });
  registry.judge(deniedExpired, { expired: ['proof'] });
  registry.judge(failed, { outcome: 'fail' });
  const good = registry.bundle([live, eventful, outside]);
  const withRevoked = registry.bundle([live, outside, passportRevoked, eventful]);
  const large = registry.bundle([...others, passportRevoked, failed]);
  const withExpired = registry.bundle([live, expired]);
  const withFailed = registry.bundle([failed, live]);
  const shared = registry.share('proof', live);
  const sharedDenied = registry.share('proof', denied);
  const sharedRevoked = registry.share('certificate', revoked);
  const sharedPackage = registry.share('package', withRevoked);
  const ended = registry.share('trust', live);
  registry.endShare(ended);
  await snapshot.publisher({ recentLookupLimit: 10 }).runCycle();
  snapshot.clock.at += 3500;
  const server = await snapshot.serve(snapshot.facade({ publicUrl: PUBLIC_URL }));
  const unknown = proofIdAt(1_700_000_000_000, 'unknown');

  const rows: [name: string, id: string, status: string, headline: string, path: string][] = [
    ['valid', live, 'VALID', 'Valid proof', 'proof/'],
    ['sandbox', sandbox, 'VALID', 'Sandbox: Valid proof', 'proof/'],
    ['certificate', `cert_${live}`, 'VERIFIED', 'Verified certificate', 'certificate/'],
    [
      'certificate by reference',
      `certref_${live}`,
      'VERIFIED',
      'Verified certificate',
      'certificate/',
    ],
    ['passport', `pass_${live}`, 'PASS', 'Passport passes', 'passport/'],
    ['execution passport', `execpass_${live}`, 'PASS', 'Passport passes', 'passport/'],
    ['trust', `trust_${live}`, 'TRUST_ESTABLISHED', 'Trust established', 'trust/'],
    ['trust asset', `asset_${live}`, 'TRUST_ESTABLISHED', 'Trust established', 'trust-asset/'],
    ['execution', `exec_${live}`, 'VALID', 'Valid proof', '?identifier='],
    ['denied', denied, 'VALID', 'Denied', 'proof/'],
    ['outcome', outcome, 'VALID', 'Outcome recorded', 'proof/'],
    [
      'no artifact of an outcome',
      `cert_${outcome}`,
      'BACKEND_LOOKUP_REQUIRED',
      'Not resolved',
      'certificate/',
    ],
    ['denied in the sandbox', deniedSandbox, 'VALID', 'Sandbox: Denied', 'proof/'],
    ['denied and revoked', deniedRevoked, 'REVOKED', 'Denied, and revoked', 'proof/'],
    ['denied and expired', deniedExpired, 'EXPIRED', 'Denied, and expired', 'proof/'],
    ['revoked', revoked, 'REVOKED', 'Revoked proof', 'proof/'],
    ['revoked passport', `pass_${revoked}`, 'REVOKED', 'Revoked passport', 'passport/'],
    ['proof of a revoked passport', passportRevoked, 'VALID', 'Valid proof', 'proof/'],
    ['revoked trust', `trust_${passportRevoked}`, 'REVOKED', 'Revoked trust artifact', 'trust/'],
    ['expired', expired, 'EXPIRED', 'Expired proof', 'proof/'],
    ['expired certificate', `cert_${expired}`, 'EXPIRED', 'Expired certificate', 'certificate/'],
    ['not found', unknown, 'NOT_FOUND', 'Not found', 'proof/'],
    ['not confirmed', failed, 'BACKEND_LOOKUP_REQUIRED', 'Not confirmed', 'proof/'],
    ['not resolved', `pass_${unknown}`, 'BACKEND_LOOKUP_REQUIRED', 'Not resolved', 'passport/'],
    [
      'no artifact of a denial',
      `cert_${denied}`,
      'BACKEND_LOOKUP_REQUIRED',
      'Not resolved',
      'certificate/',
    ],
    [
      'outside the window',
      `exec_${outside}`,
      'BACKEND_LOOKUP_REQUIRED',
      'Not resolved',
      '?identifier=',
    ],
    ['share token', `share_${'A'.repeat(43)}`, 'BACKEND_LOOKUP_REQUIRED', 'Not resolved', 'share/'],
    ['ended share token', ended, 'BACKEND_LOOKUP_REQUIRED', 'Not resolved', 'share/'],
    ['shared', shared, 'VALID', 'Valid proof', 'share/'],
    ['shared denial', sharedDenied, 'VALID', 'Denied', 'share/'],
    ['shared and revoked', sharedRevoked, 'REVOKED', 'Revoked certificate', 'share/'],
    ['shared package', sharedPackage, 'REVOKED', 'Revoked package', 'share/'],
    ['package', good, 'TRUST_ESTABLISHED', 'Trust established', 'package/'],
    ['package with a revoked member', withRevoked, 'REVOKED', 'Revoked package', 'package/'],
    ['large package', large, 'REVOKED', 'Revoked package', 'package/'],
    ['package with an expired member', withExpired, 'EXPIRED', 'Expired package', 'package/'],
    [
      'package that is not confirmed',
      withFailed,
      'BACKEND_LOOKUP_REQUIRED',
      'Not confirmed',
      'package/',
    ],
    ['unknown package', `pkg_${unknown}`, 'BACKEND_LOOKUP_REQUIRED', 'Not resolved', 'package/'],
    ['long history', `trust_${eventful}`, 'TRUST_ESTABLISHED', 'Trust established', 'trust/'],
    ['anything', 'anything', 'BACKEND_LOOKUP_REQUIRED', 'Not resolved', '?identifier='],
  ];
  const states = rows.map(([name, identifier, status, headline, path]): PageState => {
    const jsonUrl = `/api/public/verify${path.startsWith('?') ? '' : '/'}${path}${identifier}`;
    return {
      name,
      identifier,
      status,
      headline,
      jsonUrl,
      http: status === 'NOT_FOUND' ? 404 : 200,
    };
  });
  const state = (name: string): PageState => states.find((one) => one.name === name)!;
  return { snapshot, server, states, state };
}
