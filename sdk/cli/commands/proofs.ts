import { Option } from 'commander';
import { utf8 } from '../../../protocol/bytes.js';
import { isProofId } from '../../../protocol/ids.js';
import * as sdk from '../../index.js';
import { type CommandSpec, type Invocation, NEEDS_ENGINE, UsageError } from '../config.js';
import { EXIT, type ExitCode, row, styled } from '../terminal.js';
import { outOption, sendExport, writeResponse } from '../files.js';

interface FileOptions<Format> {
  format: Format;
  out?: string;
}

const formatOption = (formats: readonly string[]): Option =>
  new Option('--format <FORMAT>', 'format of the file').choices(formats).default('json');

export const exportCommand: CommandSpec<
  FileOptions<sdk.ExportFormat> & { agent?: string; disclose?: string }
> = {
  name: 'export',
  summary: 'Export a proof, or a closed run, as a file for offline verification',
  description: `${NEEDS_ENGINE} Other formats of a proof are its AEP and a PDF. With --agent, ID is a run of this agent, and the file is the package of the run. The command writes the file completely or not at all, byte for byte as the engine sent it. --json with --out prints the hashes of request and response. Exits 3 while the proof is not verified, or no checkpoint covers it.`,
  examples: [
    'svc export 019aa2c1e07b7c0f8a3e5d6b7c8d9e0f -o proof.json',
    'svc export 019aa2c1e07b7c0f8a3e5d6b7c8d9e0f --format pdf -o proof.pdf',
    'svc export 019aa2c1e07b7c0f8a3e5d6b7c8d9e0f --disclose amount,currency -o amount.json',
    'svc export 019aa2c1d0007000b1b2b3b4b5b6b7b8 --agent support-agent-7 -o run.json',
  ],
  argument: '<ID>',
  options: [
    formatOption(['json', 'aep-json', 'pdf'] satisfies sdk.ExportFormat[]),
    ['--agent <AGENT>', 'export the run with this ID, of this agent'],
    ['--disclose <NAMES>', 'disclose only these values: facts, budget.<counter> and hashes'],
    outOption,
  ],
  run: async (invocation) => {
    const { argument: proof_id, options, engine, terminal } = invocation;
    const { agent, disclose, format, out } = options;
    if (agent !== undefined) {
      if (disclose !== undefined || format !== 'json') {
        throw new UsageError('--agent exports a run: leave out --format and --disclose');
      }
      const run = await sdk.exportRunHttp(engine(), { run: proof_id, agent });
      await writeResponse(invocation, utf8(sdk.canonicalJson(run.response)), run);
      return EXIT.success;
    }
    if (format === 'pdf' && out === undefined && terminal.outIsTerminal) {
      throw new UsageError('a terminal cannot show a PDF: give --out FILE');
    }
    const envelope = await sdk.exportProofHttp(engine(), {
      proof_id,
      format,
      ...(disclose !== undefined && { disclose: disclose.split(',') }),
    });
    const { response } = envelope;
    const bytes = response instanceof Uint8Array ? response : utf8(sdk.canonicalJson(response));
    await writeResponse(invocation, bytes, envelope);
    return EXIT.success;
  },
};

export const inclusionCommand: CommandSpec<FileOptions<sdk.InclusionFormat>> = {
  name: 'inclusion',
  summary: 'Retrieve the position of a proof in the log, and the signed checkpoint over it',
  description: `${NEEDS_ENGINE} The format tlog-proof is a C2SP .tlog-proof, which other tools and \`svc verify --offline --tlog-proof\` read. The command does not verify the inclusion. Exits 3 while no checkpoint covers the proof.`,
  examples: [
    'svc inclusion 019aa2c1e07b7c0f8a3e5d6b7c8d9e0f',
    'svc inclusion 019aa2c1e07b7c0f8a3e5d6b7c8d9e0f --format tlog-proof -o proof.tlog-proof',
  ],
  argument: '<PROOF_ID>',
  options: [formatOption(['json', 'tlog-proof'] satisfies sdk.InclusionFormat[]), outOption],
  run: async (invocation) => {
    const { argument: proof_id, options, engine } = invocation;
    const envelope = await sdk.getProofInclusionHttp(engine(), {
      proof_id,
      format: options.format,
    });
    const { response } = envelope;
    const text = typeof response === 'string' ? response : sdk.canonicalJson(response);
    await writeResponse(invocation, utf8(text), envelope);
    const isIncluded = typeof response === 'string' || response.state === 'included';
    return isIncluded ? EXIT.success : EXIT.undecided;
  },
};

const REPLAY_CODES: Record<sdk.Replay['result'], ExitCode> = {
  match: EXIT.success,
  divergence: EXIT.negative,
  engine_version_differs: EXIT.undecided,
};

export const replayCommand: CommandSpec = {
  name: 'replay',
  summary: 'Replay the decision of a proof from its pinned inputs',
  description: `FILE is an output of \`svc export\`; - reads standard input. ${NEEDS_ENGINE} Exits 0 when the replay matches, 1 when it diverges, and 3 when the running version of the policy engine is not the version that decided.`,
  examples: ['svc replay 019aa2c1e07b7c0f8a3e5d6b7c8d9e0f', 'svc replay proof.json --json'],
  argument: '<PROOF_ID|FILE>',
  options: [['--policy <DIGEST>', 'also evaluate this policy set; with PROOF_ID only']],
  run: replay,
};

async function replay(invocation: Invocation<{ policy?: string }>): Promise<ExitCode> {
  const { argument, options, json, terminal } = invocation;
  const engine = invocation.engine();
  const isId = isProofId(argument);
  if (options.policy !== undefined && !isId) {
    throw new UsageError('--policy needs a proof id, not a file');
  }
  const policy = options.policy === undefined ? {} : { policy_digest: options.policy };
  const envelope = await (isId
    ? sdk.replayProofHttp(engine, { proof_id: argument, ...policy })
    : sendExport(argument, (document) => sdk.replayProofHttp(engine, document)));
  const { result, proof_id, differences, counterfactual } = envelope.response;
  const exitCode = REPLAY_CODES[result];
  if (json) {
    terminal.printJson(envelope);
    return exitCode;
  }
  terminal.print(styled(exitCode, result));
  terminal.print(...row('proof', proof_id));
  for (const { pointer } of differences) terminal.print(...row('differs', pointer || '/'));
  if (counterfactual !== null) {
    const { decision, differs } = counterfactual;
    const compared = differs ? 'another decision' : 'the same';
    terminal.print(...row('with --policy', `${decision.effect}, ${compared}`));
  }
  return exitCode;
}
