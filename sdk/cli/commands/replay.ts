import { isProofId } from '../../../protocol/ids.js';
import { replayProofHttp, type Replay } from '../../index.js';
import { text, type Command } from '../command.js';
import { EXIT, type ExitCode } from '../exit-code.js';
import { askAboutExport } from '../read-document.js';
import { UsageError } from '../usage-error.js';
import { row, styled } from '../verdict.js';

const CODES: Record<Replay['result'], ExitCode> = {
  match: EXIT.yes,
  divergence: EXIT.no,
  engine_version_differs: EXIT.undecided,
};

export const replay: Command = {
  name: 'replay',
  summary: 'Take the decision of a proof again, from what was pinned at the time',
  usage: 'PROOF_ID | FILE',
  takes: { least: 1, most: 1 },
  description:
    'Needs SVC_ENGINE_URL, SVC_TENANT_ID and a key. FILE is what `svc export` wrote; - is standard\n' +
    'input. Exits 0 when everything came out the same, 1 when something did not, and 3 when the\n' +
    'policy engine is another version than the one that decided.',
  options: {
    policy: {
      type: 'string',
      value: 'DIGEST',
      help: 'try this policy set besides; of PROOF_ID only',
    },
  },
  examples: ['svc replay 019aa2c1e07b7c0f8a3e5d6b7c8d9e0f', 'svc replay proof.json --json'],
  run: async ({ args: [name = ''], values, json, engine, terminal }) => {
    const options = engine();
    const policy = text(values, 'policy');
    if (policy !== undefined && !isProofId(name)) {
      throw new UsageError('--policy goes with a proof id, not with a file');
    }
    const byId = { proof_id: name, ...(policy !== undefined && { policy_digest: policy }) };
    const envelope = await (isProofId(name)
      ? replayProofHttp(options, byId)
      : askAboutExport(name, (document) => replayProofHttp(options, document)));
    const { result, proof_id, differences, counterfactual } = envelope.response;
    if (json) {
      terminal.printJson(envelope);
      return CODES[result];
    }
    terminal.print(styled(CODES[result], result));
    terminal.print(...row('proof', proof_id));
    for (const { pointer } of differences) terminal.print(...row('differs', pointer || '/'));
    if (counterfactual !== null) {
      const { decision, differs } = counterfactual;
      const said = `${decision.effect}${differs ? ', which is another decision' : ', the same'}`;
      terminal.print(...row('that policy', said));
    }
    return CODES[result];
  },
};
