"""Models of transformers, tiny and random, in pairs: one attends by transformers' eager code, one by regard."""

import torch
import transformers as hf

TEXT = {"vocab_size": 96, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
DECODER = {**TEXT, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}
LOCAL = {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]}


def gpt2():
    config = hf.GPT2Config(
        vocab_size=96, n_positions=64, n_embd=48, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=None, pad_token_id=0
    )
    return hf.GPT2LMHeadModel(config)


def llama():
    return hf.LlamaForCausalLM(hf.LlamaConfig(**DECODER, num_key_value_heads=2))


def mistral():
    return hf.MistralForCausalLM(hf.MistralConfig(**DECODER, num_key_value_heads=2, sliding_window=5))


def gemma2():
    config = hf.Gemma2Config(
        **DECODER, **LOCAL, num_key_value_heads=2, head_dim=16, attn_logit_softcapping=2.0, query_pre_attn_scalar=7
    )
    return hf.Gemma2ForCausalLM(config)


def gemma3():
    config = hf.Gemma3TextConfig(**DECODER, **LOCAL, num_key_value_heads=1, head_dim=16)
    return hf.Gemma3ForCausalLM(config)


def gpt_oss():
    rope = {"rope_type": "default", "rope_theta": 1e4}
    config = hf.GptOssConfig(
        **DECODER, **LOCAL, num_key_value_heads=2, head_dim=12, num_local_experts=2, num_experts_per_tok=1,
        rope_parameters=rope,
    )  # fmt: skip
    return hf.GptOssForCausalLM(config)


def llama4():
    config = hf.Llama4TextConfig(
        **DECODER, num_key_value_heads=2, head_dim=12, intermediate_size_mlp=64, num_local_experts=2,
        attention_chunk_size=6, layer_types=["chunked_attention", "full_attention"],
    )  # fmt: skip
    return hf.Llama4ForCausalLM(config)


def deepseek_v3():
    config = hf.DeepseekV3Config(
        **DECODER, num_key_value_heads=4, moe_intermediate_size=32, n_routed_experts=4, n_group=2, topk_group=1,
        num_experts_per_tok=2, first_k_dense_replace=1, q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8,
        qk_nope_head_dim=8, v_head_dim=12,
    )  # fmt: skip
    return hf.DeepseekV3ForCausalLM(config)


def bert():
    return hf.BertForMaskedLM(hf.BertConfig(**TEXT))


def modernbert():
    config = hf.ModernBertConfig(**TEXT, local_attention=6, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    return hf.ModernBertForMaskedLM(config)


def t5():
    config = hf.T5Config(
        vocab_size=96,
        d_model=48,
        d_kv=12,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=1,
        eos_token_id=None,
    )
    return hf.T5ForConditionalGeneration(config)


def bart():
    config = hf.BartConfig(
        vocab_size=96, d_model=48, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=64,
        eos_token_id=None, pad_token_id=0, bos_token_id=1, decoder_start_token_id=1, forced_eos_token_id=None,
    )  # fmt: skip
    return hf.BartForConditionalGeneration(config)


def whisper():
    config = hf.WhisperConfig(
        vocab_size=96, num_mel_bins=8, d_model=48, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=20,
        max_target_positions=32, pad_token_id=0, bos_token_id=1, eos_token_id=95, decoder_start_token_id=1,
    )  # fmt: skip
    return hf.WhisperForConditionalGeneration(config)


def vit():
    config = hf.ViTConfig(
        hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=32, patch_size=8
    )
    return hf.ViTForImageClassification(config)


DECODERS = [gpt2, llama, mistral, gemma2, gemma3, gpt_oss, llama4, deepseek_v3]
ENCODERS = [bert, modernbert]
BOTH = [t5, bart]


def pair(make):
    """Make the same model twice; weights are larger than usual, so that attention is not nearly uniform."""
    torch.manual_seed(0)
    eager = make().eval()
    with torch.no_grad():
        for name, parameter in eager.named_parameters():
            if name.endswith("sinks"):
                parameter.normal_()
            elif parameter.ndim > 1 and make is not t5:  # whose scores have no scale
                parameter.mul_(4)
    eager.set_attn_implementation("eager")
    ours = type(eager)(type(eager.config).from_dict(eager.config.to_dict())).eval()
    ours.load_state_dict(eager.state_dict())
    ours.set_attn_implementation("regard")
    return eager, ours
