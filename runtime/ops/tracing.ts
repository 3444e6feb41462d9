import type { Attributes, Context, Span } from '@opentelemetry/api';
import { version } from '../process/files.js';
import { instance, logRarely } from '../process/log.js';
import type { ProgramContext } from '../process/lifecycle.js';

export interface TracingConfig {
  /** Base URL of an OTLP/HTTP collector; null records nothing. */
  otelExporterOtlpEndpoint: string | null;
  /** Share of the requests without a `traceparent` that start a trace, 0 to 1. */
  otelTracesSamplerArg?: number;
}

/** Spans have ids and results, never a payload, a secret or a tenant's name. */
export type Tracing = NonNullable<Awaited<ReturnType<typeof openTracing>>>;

const TRACEPARENT = /^00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})$/;

/** Enough for a batch of 10,000 items in one program, which records two spans for each item: wait and decision. */
const MAX_QUEUED_SPANS = 20_000;

/** Null without a collector: then the OpenTelemetry SDK is not even loaded. */
export async function openTracing(
  program: string,
  { otelExporterOtlpEndpoint: endpoint, otelTracesSamplerArg: ratio = 1 }: TracingConfig,
  { onStop, log }: Pick<ProgramContext, 'onStop' | 'log'>,
) {
  if (endpoint === null) return null;
  const [api, sdk, { OTLPTraceExporter }, { resourceFromAttributes }] = await Promise.all([
    import('@opentelemetry/api'),
    import('@opentelemetry/sdk-trace'),
    import('@opentelemetry/exporter-trace-otlp-http'),
    import('@opentelemetry/resources'),
  ]);
  const exporter = new OTLPTraceExporter({
    url: `${endpoint.replace(/\/$/, '')}/v1/traces`,
  });
  const provider = new sdk.TracerProvider({
    resource: resourceFromAttributes({
      'service.name': `svc-${program}`,
      'service.version': version,
      'service.instance.id': instance,
    }),
    sampler: new sdk.ParentBasedSampler({ root: new sdk.TraceIdRatioBasedSampler(ratio) }),
    spanProcessors: [
      new sdk.BatchSpanProcessor({
        exporter,
        scheduledDelayMillis: 1_000,
        maxQueueSize: MAX_QUEUED_SPANS,
      }),
    ],
  });
  onStop(() =>
    provider.shutdown().catch((error: unknown) => {
      log.warn({ err: error }, 'tracing: the last spans were not delivered');
    }),
  );
  const quiet = (): void => undefined;
  const undelivered = (reason: string): void =>
    logRarely(log, 'warn', { reason }, 'tracing: spans were not delivered');
  api.diag.setLogger({
    error: undelivered,
    // The SDK warns when it drops spans because its queue is full.
    warn: undelivered,
    info: quiet,
    debug: quiet,
    verbose: quiet,
  });
  const tracer = provider.getTracer('svc', version);

  const contextOf = (traceparent: string | undefined): Context => {
    const [, traceId, spanId, flags] = TRACEPARENT.exec(traceparent ?? '') ?? [];
    if (traceId === undefined || spanId === undefined) return api.ROOT_CONTEXT;
    const traceFlags = parseInt(flags ?? '0', 16) & api.TraceFlags.SAMPLED;
    return api.trace.setSpanContext(api.ROOT_CONTEXT, {
      traceId,
      spanId,
      traceFlags,
      isRemote: true,
    });
  };
  return {
    /** @param traceparent header of the request; a malformed one is ignored */
    begin: (traceparent: string | undefined) => {
      const span = tracer.startSpan(
        'request',
        { kind: api.SpanKind.SERVER },
        contextOf(traceparent),
      );
      return {
        /** The W3C context for later spans; null when the request is not sampled. */
        traceparent: traceparentOf(span),
        end: (name: string, attributes: Attributes) =>
          void span.updateName(name).setAttributes(attributes).end(),
      };
    },
    /** Records a past span. Times are in epoch milliseconds. */
    record: (
      name: string,
      { traceparent, proofId }: { traceparent: string; proofId: string },
      startedAt: number,
      endedAt: number,
      attributes: Attributes = {},
    ): void => {
      const options = { startTime: startedAt, attributes: { ...attributes, proof_id: proofId } };
      tracer.startSpan(name, options, contextOf(traceparent)).end(endedAt);
    },
  };
}

function traceparentOf(span: Span): string | null {
  const { traceId, spanId, traceFlags } = span.spanContext();
  return traceFlags === 1 ? `00-${traceId}-${spanId}-01` : null;
}
